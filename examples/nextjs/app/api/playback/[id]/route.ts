import { Livepeer } from "livepeer";

// Asks weir what there is to play under an id. The API key stays on this server.
export async function GET(_: Request, { params }: { params: Promise<{ id: string }> }) {
  const weir = process.env.WEIR ?? "http://localhost:8080";
  const livepeer = new Livepeer({ apiKey: process.env.KEY, serverURL: `${weir}/api` });
  try {
    const { playbackInfo } = await livepeer.playback.get((await params).id);
    return Response.json(playbackInfo);
  } catch (error) {
    return new Response(`weir: ${error}`, { status: 502 });
  }
}

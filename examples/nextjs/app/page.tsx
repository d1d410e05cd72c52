import { Video } from "./video";

// Plays what ?v= names: the playback id of a stream, a recording, a clip or an asset.
export default async function Page({ searchParams }: { searchParams: Promise<{ v?: string; jwt?: string }> }) {
  const { v, jwt } = await searchParams;
  if (!v) {
    return <p>Add ?v= and a playback id to the address.</p>;
  }
  return <Video playbackId={v} jwt={jwt} />;
}

"use client";

import { getSrc } from "@livepeer/react/external";
import * as Player from "@livepeer/react/player";
import type { Src } from "@livepeer/react";
import { useEffect, useState } from "react";

// Video is the official player, for what the server of this app knows of a playback id. A JWT is
// needed for gated content; make it on the server.
export function Video({ playbackId, jwt }: { playbackId: string; jwt?: string }) {
  const [src, setSrc] = useState<Src[] | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    fetch(`/api/playback/${playbackId}`)
      .then(async (answer) => (answer.ok ? setSrc(getSrc(await answer.json())) : setProblem(await answer.text())))
      .catch((error) => setProblem(String(error)));
  }, [playbackId]);
  if (problem) {
    return <p role="alert">{problem}</p>;
  }
  if (!src) {
    return <p>Loading…</p>;
  }
  return (
    <Player.Root src={src} jwt={jwt} autoPlay volume={0}>
      <Player.Container>
        <Player.Video title="video" style={{ width: "100%" }} />
        <Player.Controls autoHide={0}>
          <Player.PlayPauseTrigger>
            <Player.PlayingIndicator matcher={false}>Play</Player.PlayingIndicator>
            <Player.PlayingIndicator>Pause</Player.PlayingIndicator>
          </Player.PlayPauseTrigger>
        </Player.Controls>
      </Player.Container>
    </Player.Root>
  );
}

// The player of Livepeer Studio (@livepeer/core-web), as its own components use it.
import { createControllerStore } from "@livepeer/core/media";
import { createStorage, noopStorage } from "@livepeer/core/storage";
import { addEventListeners, getDeviceInfo } from "@livepeer/core-web/browser";
import { getSrc } from "@livepeer/core-web/external";

const printed = [];
for (const level of ["error", "warn"]) {
  const print = console[level];
  console[level] = (...words) => {
    printed.push(words.map(String).join(" "));
    print(...words);
  };
}

// said returns what the player printed.
window.said = () => printed.join("\n");

// official plays what the API says of a playback id.
//
//   info   the URL of the playback info
//   jwt    the viewer's JWT, "" for none
window.official = async ({ info, jwt }) => {
  const errors = [];
  const video = document.createElement("video");
  video.muted = true;
  video.autoplay = true;
  video.playsInline = true;
  video.width = 320;
  document.body.append(video);
  const answer = await fetch(info);
  const src = getSrc(await answer.json());
  const { store } = createControllerStore({
    device: getDeviceInfo("test"),
    storage: createStorage({ storage: noopStorage }),
    src,
    initialProps: {
      jwt: jwt || null,
      autoPlay: true,
      volume: 0,
      onError: (error) => error && errors.push(`${error.type}: ${error.message}`),
    },
  });
  addEventListeners(video, store);
  store.getState().__controlsFunctions.setMounted();

  // watched tells how it goes.
  window.watched = () => {
    const { totalVideoFrames, corruptedVideoFrames } = video.getVideoPlaybackQuality();
    return {
      fatal: errors,
      source: store.getState().currentSource?.type ?? "",
      at: video.currentTime,
      duration: Number.isFinite(video.duration) ? video.duration : 0,
      ended: video.ended,
      frames: totalVideoFrames,
      corrupted: corruptedVideoFrames,
    };
  };
};

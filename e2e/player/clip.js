// frames plays something once, from its start to its end and as fast as in life, and tells of
// every frame that was shown.
//
//   engine   "hls.js", or "video" for the browser's own
//   url      of a playlist or a file
//
// The result has errors, empty if all is well, and for each frame that was shown its time in the
// media and the time when it was on the screen, in seconds.
window.frames = async ({ engine, url }) => {
  const video = document.createElement("video");
  video.muted = true;
  video.width = 256;
  video.preload = "auto";
  document.body.append(video);
  const result = { errors: [], shown: [], decoded: 0, dropped: 0, corrupted: 0, from: 0, end: 0, duration: 0 };
  video.addEventListener("error", () => result.errors.push(`video: ${video.error?.message} (${video.error?.code})`));
  const note = (now, frame) => {
    result.shown.push([frame.mediaTime, frame.expectedDisplayTime / 1000]);
    video.requestVideoFrameCallback(note);
  };
  video.requestVideoFrameCallback(note);
  let player;
  if (engine === "hls.js") {
    player = new Hls({ enableWorker: false, maxBufferLength: 600 });
    player.on(Hls.Events.ERROR, (_, data) => result.errors.push(`hls.js: ${data.details} ${data.reason ?? data.error?.message ?? ""}`));
    player.attachMedia(video);
    player.loadSource(url);
  } else {
    video.src = url;
  }
  const until = (what, look) =>
    new Promise((resolve, reject) => {
      const deadline = performance.now() + 300_000; // it hangs
      const timer = setInterval(() => {
        if (!look() && result.errors.length === 0 && performance.now() < deadline) return;
        clearInterval(timer);
        if (look()) resolve();
        else {
          const ranges = Array.from({ length: video.buffered.length }, (_, i) => [video.buffered.start(i), video.buffered.end(i)]);
          reject(new Error(`no ${what}; at ${video.currentTime} of ${video.duration}, ready ${video.readyState}, buffered ${JSON.stringify(ranges)}`));
        }
      }, 20);
    });
  try {
    // All of it is there before it plays: a network has nothing to do with what is measured.
    await until("buffer", () => {
      const ranges = video.buffered;
      return ranges.length > 0 && ranges.end(ranges.length - 1) >= video.duration - 0.2;
    });
    result.from = video.buffered.start(0);
    video.play().catch((error) => result.errors.push(error.message));
    await until("end", () => video.ended);
    await new Promise((resolve) => setTimeout(resolve, 100));
  } catch (error) {
    result.errors.push(error.message);
  }
  if (video.buffered.length > 1) result.errors.push(`${video.buffered.length - 1} holes in the buffer`);
  const quality = video.getVideoPlaybackQuality();
  Object.assign(result, {
    decoded: quality.totalVideoFrames,
    dropped: quality.droppedVideoFrames,
    corrupted: quality.corruptedVideoFrames,
    end: video.currentTime,
    duration: video.duration,
  });
  player?.destroy();
  video.remove();
  return result;
};

// watch lets hls.js play a live stream with low latency, and goes on until the page is
// left. Nothing here helps it over a gap.
//
//   url    of a master playlist
window.watch = (url) => {
  const video = document.createElement("video");
  video.muted = true;
  video.width = 320;
  document.body.append(video);
  // What hls.js tells of its doings, for whoever wants to know why it stands still.
  const said = [];
  const since = performance.now();
  const note = (...words) => {
    said.push(`${((performance.now() - since) / 1000).toFixed(2)} ${words.join(" ")}`);
    if (said.length > 3000) said.shift();
  };
  const debug = { debug: note, log: note, info: note, warn: note, error: note };
  const player = new Hls({ enableWorker: false, lowLatencyMode: true, debug });
  const fatal = [];
  const others = {};
  player.on(Hls.Events.ERROR, (_, data) => {
    if (data.fatal) fatal.push(`${data.details} ${data.response?.code ?? ""} ${data.reason ?? data.error?.message ?? ""}`);
    else others[data.details] = (others[data.details] ?? 0) + 1;
  });
  video.addEventListener("error", () => fatal.push(`video: ${video.error?.message} (${video.error?.code})`));
  player.attachMedia(video);
  player.loadSource(url);
  video.play().catch((error) => fatal.push(`play: ${error.message}`));

  // change goes on with the rendition of a height, from the next segment on, unless it does so already.
  window.change = (height) => {
    const level = player.levels.findIndex((level) => level.height === height);
    if (player.loadLevel !== level) player.nextLevel = level;
  };

  window.said = () => said.join("\n");

  // watched tells how it goes.
  window.watched = () => {
    const { totalVideoFrames, corruptedVideoFrames } = video.getVideoPlaybackQuality();
    return {
      fatal,
      others,
      at: video.currentTime,
      date: player.playingDate?.getTime() ?? 0, // of the picture that is shown, by the stream's own clock
      latency: player.latency,
      frames: totalVideoFrames,
      corrupted: corruptedVideoFrames,
      soundBytes: video.webkitAudioDecodedByteCount ?? 0,
      height: video.videoHeight,
      lowLatency: player.lowLatencyMode && (player.levels[player.currentLevel]?.details?.partList?.length ?? 0) > 0,
    };
  };
};

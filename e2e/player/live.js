// watch lets hls.js play a live stream with low latency, and goes on until the page is left. As the
// watch page does (web/src/player/playback.ts), it starts anew after an error that hls.js does not get
// over, and when the picture stands still.
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
  const errors = {};
  let player;
  let timer;
  let recovered = 0;
  let moved = Date.now(); // when the picture last did
  let at = 0;
  let played = 0; // seconds

  // total adds up a count of the browser's, which begins anew with each player.
  const counts = {};
  const total = (name, value) => {
    const count = (counts[name] ??= { before: 0, last: 0 });
    if (value < count.last) count.before += count.last;
    count.last = value;
    return count.before + value;
  };
  const totals = () => {
    const { totalVideoFrames, corruptedVideoFrames } = video.getVideoPlaybackQuality();
    return {
      frames: total("frames", totalVideoFrames),
      corrupted: total("corrupted", corruptedVideoFrames),
      soundBytes: total("sound", video.webkitAudioDecodedByteCount ?? 0),
    };
  };

  const play = () => {
    clearTimeout(timer);
    totals();
    player?.destroy();
    moved = Date.now();
    const hls = (player = new Hls({ enableWorker: false, lowLatencyMode: true, debug }));
    hls.on(Hls.Events.ERROR, (_, error) => {
      const name = `${error.details}${error.fatal ? ` fatal ${error.response?.code ?? ""} ${error.reason ?? error.error?.message ?? ""}` : ""}`;
      errors[name] = (errors[name] ?? 0) + 1;
      if (!error.fatal || hls !== player) return;
      if (error.type === Hls.ErrorTypes.MEDIA_ERROR && Date.now() - recovered > 5000) {
        recovered = Date.now();
        return hls.recoverMediaError();
      }
      clearTimeout(timer);
      timer = setTimeout(play, 2000);
    });
    hls.attachMedia(video);
    hls.loadSource(url);
    video.play().catch((error) => note(`play: ${error.message}`));
  };
  play();

  setInterval(() => {
    const step = video.currentTime - at;
    at = video.currentTime;
    if (step > 0 && step < 2 && !video.seeking) {
      played += step;
      moved = Date.now();
    } else if (Date.now() - moved > 10_000) {
      note("the picture stands still; it starts anew");
      play();
    }
  }, 250);

  // change goes on with the rendition of a height, from the next segment on, unless it does so already.
  window.change = (height) => {
    const level = player.levels.findIndex((level) => level.height === height);
    if (player.loadLevel !== level) player.nextLevel = level;
  };

  window.said = () => said.join("\n");

  // watched tells how it goes.
  window.watched = () => ({
    errors,
    played,
    date: player.playingDate?.getTime() ?? 0, // of the picture that is shown, by the stream's own clock
    latency: player.latency,
    ...totals(),
    height: video.videoHeight,
    lowLatency: player.lowLatencyMode && (player.levels[player.currentLevel]?.details?.partList?.length ?? 0) > 0,
  });
};

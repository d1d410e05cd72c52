// text plays something with text in it, jumps to each of some times, and tells which frame was shown
// there and which texts. The frames have their numbers in them, see harness.Film.
//
//   engine    "hls.js", "hls.js 1.5" or "shaka"
//   url       of a master playlist or a manifest
//   language  of the text that is shown
//   at        times in seconds of the film
//   fps       of the film
//
// The result has errors, the names of the texts, what each time showed, and the first and the last
// frame during which a cue was active, by its text.
window.text = async ({ engine, url, language, at, fps }) => {
  const video = document.createElement("video");
  video.muted = true;
  video.crossOrigin = "anonymous";
  video.width = 256;
  document.body.append(video);
  const result = { errors: [], texts: [], shown: [] };
  const run = { video, result, error: (text) => result.errors.push(text) };
  let player;
  try {
    player = await { "hls.js": withHls(Hls), "hls.js 1.5": withHls(window.Hls15), shaka: shakaText }[engine](run, url, language);
    await playing(run);
    // The time of the player at which the film begins: it need not be 0.
    const first = await shownFrame(run);
    result.begins = first.time - first.number / fps;
    for (const time of at) {
      video.currentTime = result.begins + time + 0.5 / fps;
      await playing(run);
      const frame = await shownFrame(run);
      await until(run, `text at ${time}`, () => (frame.number < 0 || player.loaded(time + result.begins) ? true : undefined));
      result.shown.push({ time, frame: frame.number, texts: player.texts(result.begins + frame.number / fps + 0.5 / fps) });
    }
    result.cues = player.cues().map(({ start, end, text }) => ({ start: start - result.begins, end: end - result.begins, text }));
  } catch (error) {
    run.error(`${error.message || error.code || error}`);
  } finally {
    await player?.destroy();
    video.remove();
  }
  return result;
};

// Each player has cues() in order, which of them show at a time, and whether it has the text there.
function withHls(Player) {
  return async (run, url, language) => {
    const hls = new Player({ enableWorker: false, renderTextTracksNatively: true });
    hls.on(Player.Events.ERROR, (_, { fatal, details }) => (fatal || details.startsWith("subtitle") || details.startsWith("internal")) && run.error(`hls.js: ${details}`));
    const tracks = new Promise((resolve) => hls.on(Player.Events.SUBTITLE_TRACKS_UPDATED, (_, { subtitleTracks }) => subtitleTracks.length && resolve(subtitleTracks)));
    const loaded = [];
    hls.on(Player.Events.SUBTITLE_FRAG_PROCESSED, (_, { success, frag }) => success && loaded.push([frag.start, frag.start + frag.duration]));
    hls.attachMedia(run.video);
    hls.loadSource(url);
    const list = await tracks;
    run.result.texts = list.map(({ name, lang }) => `${name} ${lang}`);
    hls.subtitleDisplay = true;
    hls.subtitleTrack = list.findIndex(({ lang }) => lang === language);
    const cues = () => [...run.video.textTracks].filter((t) => t.mode === "showing").flatMap((t) => [...(t.cues ?? [])]).map(plain);
    return {
      cues,
      texts: (time) => cues().filter(({ start, end }) => start <= time && time < end).map(({ text }) => text),
      loaded: (time) => loaded.some(([start, end]) => start <= time && time < end),
      destroy: () => hls.destroy(),
    };
  };
}

async function shakaText(run, url, language) {
  shaka.polyfill.installAll();
  const player = new shaka.Player();
  player.addEventListener("error", ({ detail }) => run.error(`shaka: ${detail.code} ${detail.data}`));
  await player.attach(run.video);
  await player.load(url);
  const list = player.getTextTracks();
  run.result.texts = list.map(({ label, language }) => `${label} ${language}`);
  await player.selectTextTrack(list.find((t) => t.language === language));
  await player.setTextTrackVisibility?.(true);
  const cues = () => [...run.video.textTracks].flatMap((t) => [...(t.cues ?? [])]).map(plain);
  return {
    cues,
    texts: (time) => cues().filter(({ start, end }) => start <= time && time < end).map(({ text }) => text),
    loaded: (time) => player.getBufferedInfo().text.some(({ start, end }) => start <= time && time < end),
    destroy: () => player.destroy(),
  };
}

const plain = (cue) => ({ start: cue.startTime, end: cue.endTime, text: cue.getCueAsHTML().textContent });

async function playing(run) {
  run.video.play().catch((error) => run.error(error.message));
  await until(run, `picture at ${run.video.currentTime}`, () => (!run.video.seeking && run.video.readyState >= 3 ? true : undefined));
}

// shownFrame returns the number and the time of the next frame that is shown.
function shownFrame({ video }) {
  return new Promise((resolve) => {
    const look = (_, { mediaTime }) => {
      const number = pictureNumber(video);
      if (number >= 0) resolve({ number, time: mediaTime });
      else video.requestVideoFrameCallback(look);
    };
    video.requestVideoFrameCallback(look);
  });
}

// pictureNumber reads the blocks of a frame, as harness.PictureNumber does.
function pictureNumber(video) {
  const width = 256;
  const block = 32;
  const canvas = Object.assign(document.createElement("canvas"), { width, height: 2 * block });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(video, 0, 0, width, 144);
  let code = 0;
  for (let bit = 0; bit < 16; bit++) {
    const { data } = context.getImageData((bit % 8) * block + block / 4, Math.floor(bit / 8) * block + block / 4, block / 2, block / 2);
    let sum = 0;
    for (let i = 0; i < data.length; i += 4) sum += data[i + 1];
    if (sum / (data.length / 4) > 128) code |= 1 << bit;
  }
  const n = code & 0xfff;
  return code === (n | (((n ^ (n >> 4) ^ (n >> 8) ^ 0xa) & 0xf) << 12)) ? n : -1;
}

// play lets a player of the field play something to its end, each rendition once,
// then with a change of rendition and a jump in the middle, and tells what it saw.
//
//   engine   "hls.js", "shaka", or "video" for the browser's own
//   url      of a master playlist, a manifest or a file
//   codecs   for shaka, which plays one codec of a manifest: the wanted one
//   frames   how many there are
//
// The result has errors, empty if all is well, and the renditions with the frames
// that were decoded, where playing ended and how many holes the buffer had.
window.play = async ({ engine, url, codecs, frames }) => {
  const video = document.createElement("video");
  video.muted = true;
  video.width = 320;
  document.body.append(video);
  const result = { errors: [], renditions: [] };
  const run = { video, url, codecs, frames, result, error: (text) => result.errors.push(text) };
  video.addEventListener("error", () => run.error(`video: ${video.error?.message} (${video.error?.code})`));
  const players = { "hls.js": hls, shaka: withShaka, video: native };
  try {
    await players[engine](run);
  } catch (error) {
    run.error(`${error.message || error.code || error}`);
  }
  video.remove();
  return result;
};

// jump plays the start of something with hls.js, or the browser's own player, and jumps to a time. It
// returns how many milliseconds passed until it played from there.
window.jump = async ({ engine, url, to }) => {
  const video = document.createElement("video");
  video.muted = true;
  document.body.append(video);
  const run = { video, result: { errors: [] }, error: (text) => run.result.errors.push(text) };
  const player = engine === "hls.js" ? new Hls({ enableWorker: false, maxBufferLength: 30, maxMaxBufferLength: 30 }) : undefined;
  player?.on(Hls.Events.ERROR, (_, { fatal, details }) => fatal && run.error(`hls.js: ${details}`));
  video.addEventListener("error", () => run.error(`video: ${video.error?.message} (${video.error?.code})`));
  if (player) {
    player.attachMedia(video);
    player.loadSource(url);
  } else video.src = url;
  try {
    video.play().catch((error) => run.error(error.message));
    await until(run, "start", () => (video.currentTime > 0.5 ? true : undefined));
    const began = performance.now();
    video.currentTime = to;
    await until(run, `picture after ${to}`, () => (!video.seeking && video.currentTime > to ? true : undefined));
    return performance.now() - began;
  } finally {
    if (run.result.errors.length) console.error(run.result.errors.join("; "));
    player?.destroy();
    video.removeAttribute("src");
    video.load();
    video.remove();
  }
};

// dates plays the start of something with hls.js or Shaka. It returns the time and the date of a
// picture, when the first picture is shown, and where the player put the tracks.
window.dates = async ({ engine, url }) => {
  const { addSourceBuffer } = MediaSource.prototype;
  const buffers = {};
  MediaSource.prototype.addSourceBuffer = function (type) {
    return (buffers[type.slice(0, 5)] = addSourceBuffer.call(this, type));
  };
  const video = document.createElement("video");
  video.muted = true;
  document.body.append(video);
  const run = { video, result: { errors: [] }, error: (text) => run.result.errors.push(text) };
  const player = engine === "hls.js" ? new Hls({ enableWorker: false }) : new shaka.Player();
  try {
    if (engine === "hls.js") {
      player.attachMedia(video);
      player.loadSource(url);
    } else {
      await player.attach(video);
      await player.load(url);
    }
    video.play().catch((error) => run.error(error.message));
    await until(run, "picture", () => (video.currentTime > 1 ? true : undefined));
    video.pause();
    const date = engine === "hls.js" ? player.playingDate : player.getPlayheadTimeAsDate();
    return {
      at: video.currentTime,
      date: date.getTime(),
      start: buffers.video.buffered.start(0),
      video: buffers.video.timestampOffset,
      audio: buffers.audio.timestampOffset,
    };
  } finally {
    MediaSource.prototype.addSourceBuffer = addSourceBuffer;
    await player.destroy();
    video.remove();
  }
};

// once waits for an event, or gives up and says what the player was doing.
function once(run, target, name, ready = () => false) {
  return until(run, name, () => ready() || undefined, (check) => target.addEventListener(name, () => check(true), { once: true }));
}

// until waits until look returns something.
function until(run, what, look, subscribe) {
  const { video } = run;
  return new Promise((resolve, reject) => {
    const timer = setInterval(() => check(look()), 20);
    const check = (value) => {
      if (value === undefined && run.result.errors.length === 0 && performance.now() < deadline) return;
      clearInterval(timer);
      if (value !== undefined) resolve(value);
      else {
        const ranges = Array.from({ length: video.buffered.length }, (_, i) => `${video.buffered.start(i)}-${video.buffered.end(i)}`);
        reject(new Error(`no ${what}; at ${video.currentTime} of ${video.duration}, buffered ${ranges}, ready ${video.readyState}`));
      }
    };
    const deadline = performance.now() + 300_000; // it hangs
    subscribe?.(check);
  });
}

// buffered waits until everything from a time on is in the buffer.
const buffered = (run, from = 0) =>
  until(run, `buffer from ${from}`, () => {
    const { buffered: ranges, duration } = run.video;
    for (let i = 0; i < ranges.length; i++) {
      if (ranges.start(i) <= from + 0.1 && ranges.end(i) >= duration - 0.1) return true;
    }
  });

// seek jumps to a time and waits until the picture there is shown. hls.js puts the first decoding time of
// MPEG-TS at 0, so B-frames make the first picture some frames late: seek goes on to it. hls.js itself jumps
// over this gap while it plays. In a paused video it does not, and Chromium may wait at 0 forever.
async function seek(run, to) {
  const { video } = run;
  const shown = () => !video.seeking && video.readyState >= 2;
  if (video.currentTime !== to || !shown()) video.currentTime = to;
  await until(run, `picture at ${to}`, () => {
    const first = video.buffered.length ? video.buffered.start(0) : 0;
    if (first > video.currentTime && first <= to + 0.1) video.currentTime = first;
    return shown() || undefined;
  });
}

// toTheEnd plays from where the video is to its end, rate times faster than in life.
async function toTheEnd(run, rate = 8) {
  const { video } = run;
  video.playbackRate = rate;
  const ended = once(run, video, "ended", () => video.ended);
  await video.play();
  await ended;
  if (video.duration - video.currentTime > 0.1) run.error(`ended at ${video.currentTime} of ${video.duration}`);
  if (video.buffered.length > 1) run.error(`${video.buffered.length - 1} holes in the buffer`);
}

// whole plays one rendition from its start to its end, with all of it in the buffer,
// and writes down what came of it. A browser that has no time to decode each frame
// leaves some out: then it plays again, slower.
async function whole(run, rendition) {
  const { video } = run;
  const count = () => video.getVideoPlaybackQuality();
  let before = run.counted ?? 0;
  let frames = 0;
  for (const rate of [8, 2, 1]) {
    await seek(run, 0);
    await buffered(run);
    await toTheEnd(run, rate);
    // The browser counts a little later.
    for (let i = 0; i < 50; i++) {
      frames = count().totalVideoFrames - before;
      if (frames >= run.frames) break;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    before = run.counted = count().totalVideoFrames;
    if (frames >= run.frames) break;
  }
  run.result.renditions.push({
    ...rendition,
    shownWidth: video.videoWidth,
    shownHeight: video.videoHeight,
    frames,
    corrupted: count().corruptedVideoFrames,
    holes: video.buffered.length - 1,
    from: video.buffered.start(0),
    duration: video.duration,
    end: video.currentTime,
    soundBytes: video.webkitAudioDecodedByteCount ?? 0,
    apart: run.apart?.() ?? 0,
  });
}

async function hls(run) {
  const { video, url } = run;
  const player = new Hls({ enableWorker: false, autoStartLoad: false, maxBufferLength: 600, startLevel: 0, capLevelToPlayerSize: false, detectStallWithCurrentTimeMs: 20_000 });
  // That it breaks off a request after a jump, that a busy machine is too slow to play so fast or
  // to answer in time, which it asks again for, or that a segment of another level takes the place
  // of one that was there, is none: what matters is that it comes to the end.
  const harmless = ["aborted", "bufferStalledError", "bufferAppendNoProgress", "fragLoadTimeOut", "levelLoadTimeOut", "audioTrackLoadTimeOut"];
  player.on(Hls.Events.ERROR, (_, data) => (data.fatal || !harmless.includes(data.details)) && run.error(`hls.js: ${data.details}${data.fatal ? ", fatal" : ""} ${data.reason ?? data.error?.message ?? ""}`));
  // How much later than the video the audio starts, where each has a playlist of its own. In
  // segments that have both hls.js fills the time before the first packet with silence.
  run.apart = () => {
    const { audio, video } = player.bufferController.tracks;
    return player.audioTracks.some(({ url }) => url) ? audio.buffer.buffered.start(0) - video.buffer.buffered.start(0) : 0;
  };
  const parsed = new Promise((resolve) => player.once(Hls.Events.MANIFEST_PARSED, resolve));
  player.attachMedia(video);
  player.loadSource(url);
  await Promise.race([parsed, until(run, "manifest", () => (player.levels?.length ? true : undefined))]);
  try {
    const levels = player.levels.map((level, number) => ({ number, name: level.name || level.url[0], width: level.width, height: level.height, codecs: level.attrs.CODECS }));
    player.loadLevel = 0;
    player.startLoad(0);
    for (const { number, ...rendition } of levels) {
      await hlsLevel(run, player, number);
      await whole(run, rendition);
    }
    // From the first to the last in the middle, without a break, and then a jump back.
    if (levels.length > 1) {
      const last = levels.at(-1);
      await hlsLevel(run, player, 0);
      if (player.latestLevelDetails.fragments.length === 1) {
        await hlsLevel(run, player, last.number); // there is no middle
      } else {
        let there;
        player.on(Hls.Events.FRAG_BUFFERED, (_, { frag }) => (there ||= (frag.type === "main" && frag.level === last.number) || undefined));
        // What it is loading at this moment stays in the buffer, and may be the rest: it is
        // asked again then.
        let asked = -Infinity;
        await until(run, `segment of ${last.name}`, () => {
          if (!there && performance.now() - asked > 2_000) {
            asked = performance.now();
            player.nextLevel = last.number;
          }
          return there;
        });
      }
      video.playbackRate = 2;
      await video.play();
      await until(run, `change to ${last.name}`, () => (player.currentLevel === last.number && video.videoWidth === last.width ? true : undefined));
      run.result.changed = true;
    }
    await seek(run, video.duration / 2);
    await toTheEnd(run);
    run.result.jumped = true;
  } finally {
    player.destroy();
  }
}

// hlsLevel changes to a level at once: what is in the buffer is thrown away.
async function hlsLevel(run, player, number) {
  run.video.pause();
  player.currentLevel = number;
  await seek(run, 0);
  await until(run, `level ${number}`, () => (player.currentLevel === number ? true : undefined));
}

async function withShaka(run) {
  const { video, url } = run;
  const player = new shaka.Player();
  await player.attach(video);
  player.configure({
    abr: { enabled: false },
    preferredVideoCodecs: run.codecs ? [run.codecs] : [],
    streaming: { bufferingGoal: 600, bufferBehind: 600, rebufferingGoal: 0.1, stallEnabled: false },
  });
  player.addEventListener("error", ({ detail }) => run.error(`shaka: ${detail.code} ${detail.message} ${detail.data}`));
  // load begins anew, with one track or with all of them.
  const load = async (track) => {
    await player.unload();
    const [minBandwidth, maxBandwidth] = track ? [track.bandwidth, track.bandwidth] : [0, Infinity];
    player.configure({ restrictions: { minBandwidth, maxBandwidth } });
    await player.load(url).catch((error) => {
      throw new Error(`shaka: ${error.code} ${error.message} ${error.data}`);
    });
    run.counted = 0;
  };
  try {
    await load();
    const tracks = player.getVariantTracks().sort((a, b) => a.bandwidth - b.bandwidth);
    // Not by a change of track: shaka may stand still for good when a track whose index
    // it does not have yet is chosen at the end and a jump to the start follows.
    for (const track of tracks) {
      video.pause();
      await load(track);
      await whole(run, { name: track.label ?? `${track.height}`, width: track.width ?? 0, height: track.height ?? 0, codecs: track.codecs });
    }
    if (tracks.length > 1) {
      await load();
      const [first, ...others] = player.getVariantTracks().sort((a, b) => a.bandwidth - b.bandwidth);
      const last = others.at(-1);
      player.selectVariantTrack(first, true);
      await until(run, `track ${first.height}`, () => (video.videoHeight === (first.height ?? 0) ? true : undefined));
      video.playbackRate = 1;
      await video.play();
      player.selectVariantTrack(last, true, 1);
      await until(run, `change to ${last.width}x${last.height}`, () => (video.videoWidth === last.width && video.videoHeight === last.height ? true : undefined));
      run.result.changed = true;
    }
    await seek(run, video.duration / 2);
    await toTheEnd(run);
    run.result.jumped = true;
  } finally {
    await player.destroy();
  }
}

// native lets the browser play a file by itself.
async function native(run) {
  const { video, url } = run;
  video.preload = "auto";
  video.src = url;
  await once(run, video, "loadedmetadata", () => video.readyState >= 1);
  await whole(run, { name: url.split("/").pop(), width: video.videoWidth, height: video.videoHeight });
  await seek(run, video.duration / 2);
  await toTheEnd(run);
  run.result.jumped = true;
  video.removeAttribute("src");
  video.load();
}

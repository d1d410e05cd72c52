// Flash and beep in the browser: beat sends them over WHIP, watchHLS, watchShaka and
// watchWHEP play them and write down when they are shown and heard. One of them is called
// on a page, then state() and told() say how it goes.

// A beep is the first sample that is as loud as this after as many seconds of quiet.
const loud = 0.2;
const pause = 0.3;

// listen calls back for each beep that comes out of a node, with the time at which it is
// heard, in seconds of this page's clock.
async function listen(audio, heard) {
  const source = `
    registerProcessor("listener", class extends AudioWorkletProcessor {
      quiet = 0;
      process([[samples]]) {
        samples?.forEach((s, i) => {
          if (Math.abs(s) < ${loud}) this.quiet++;
          else {
            if (this.quiet > ${pause} * sampleRate) this.port.postMessage((currentFrame + i) / sampleRate);
            this.quiet = 0;
          }
        });
        return true;
      }
    });`;
  await audio.audioWorklet.addModule(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  const node = new AudioWorkletNode(audio, "listener");
  node.port.onmessage = ({ data }) => {
    const { contextTime, performanceTime } = audio.getOutputTimestamp();
    heard(performanceTime / 1000 + data - contextTime);
  };
  return node;
}

// hear calls back for each beep of a track that comes over WebRTC, with the time at which
// the browser took it out to be played, in seconds of a clock of its own. clock tells how far
// this page's clock is ahead of that. A node of Web Audio would hear the track later than
// who watches, by what it keeps in hand itself.
async function hear(track, heard, clock) {
  const reader = new MediaStreamTrackProcessor({ track, maxBufferSize: 500 }).readable.getReader();
  let quiet = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const at = value.timestamp / 1e6;
    clock(performance.now() / 1000 - at);
    const samples = new Float32Array(value.numberOfFrames);
    value.copyTo(samples, { planeIndex: 0, format: "f32-planar" });
    samples.forEach((s, i) => {
      if (Math.abs(s) < loud) quiet++;
      else {
        if (quiet > pause * value.sampleRate) heard(at + i / value.sampleRate);
        quiet = 0;
      }
    });
    value.close();
  }
}

// beat sends a canvas that flashes every two seconds, and a beep that is started together
// with the flash.
window.beat = async (url) => {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [640, 360];
  document.body.append(canvas);
  const picture = canvas.getContext("2d");
  const pictures = canvas.captureStream(0);
  const [track] = pictures.getVideoTracks();
  track.contentHint = "detail"; // the size stays, whatever the line is like

  const audio = new AudioContext({ sampleRate: 48000, latencyHint: "interactive" });
  const tone = new OscillatorNode(audio, { frequency: 1000 });
  const loudness = new GainNode(audio, { gain: 0 });
  const sound = audio.createMediaStreamDestination();
  tone.connect(loudness).connect(sound);
  tone.start();
  await audio.resume();
  // On a busy machine the browser begins to make a sound later than it was told.
  let flashed = 0;
  window.late = [];
  const node = await listen(audio, (at) => window.late.push(at - (audio.outputLatency || 0) - flashed));
  loudness.connect(node).connect(sound);

  const pc = new RTCPeerConnection();
  const video = pc.addTransceiver(track, { direction: "sendonly", streams: [pictures] });
  video.setCodecPreferences(RTCRtpSender.getCapabilities("video").codecs.filter((c) => c.mimeType === "video/H264"));
  pc.addTransceiver(sound.stream.getAudioTracks()[0], { direction: "sendonly", streams: [pictures] });

  let n = 0;
  const draw = () => {
    const flash = n % 30 === 15 || n % 30 === 16;
    picture.fillStyle = flash ? "white" : `hsl(${n % 360} 60% 20%)`;
    picture.fillRect(0, 0, 640, 360);
    if (!flash) {
      picture.fillStyle = "#777";
      picture.fillRect((n * 8) % 640, 100, 60, 160);
    }
    track.requestFrame();
    if (n % 30 === 15) {
      flashed = performance.now() / 1000;
      loudness.gain.setValueAtTime(0.5, audio.currentTime);
      loudness.gain.setValueAtTime(0, audio.currentTime + 0.1);
    }
    n++;
  };
  setInterval(draw, 1000 / 15);
  await exchange("publisher", pc, url);

  // silence tells for how long nothing was sent between two moments, or nobody looked.
  const sent = [];
  let packets = 0;
  setInterval(async () => {
    const now = [...(await pc.getStats()).values()].find((r) => r.type === "outbound-rtp" && r.kind === "video")?.packetsSent ?? 0;
    if (now > packets) sent.push(Date.now());
    packets = now;
  }, 100);
  window.silence = (from, to) => {
    let longest = 0;
    for (const at of [...sent, to]) {
      if (at <= from) continue;
      longest = Math.max(longest, Math.min(at, to) - from);
      from = at;
    }
    return longest;
  };
};

// run is what the page has seen.
const run = { fatal: [], others: {}, pictures: [], sound: [], beeps: [], ahead: Infinity, playout: 0, skews: [], stalls: [], start: undefined, first: 0 };
let video;
let change = () => {};

// newVideo shows something, writes down how bright each picture is, and when it does not
// go on.
function newVideo(time) {
  video = document.createElement("video");
  video.width = 320;
  video.autoplay = true;
  document.body.append(video);
  video.addEventListener("error", () => run.fatal.push(`video: ${video.error?.message} (${video.error?.code})`));

  const small = new OffscreenCanvas(16, 9).getContext("2d", { willReadFrequently: true });
  const look = (_, told) => {
    video.requestVideoFrameCallback(look);
    // The frame itself knows its time; what the video shows may be a later one by now.
    const frame = new VideoFrame(video);
    small.drawImage(frame, 0, 0, 16, 9);
    const at = time(frame, told);
    frame.close();
    const { data } = small.getImageData(0, 0, 16, 9);
    let sum = 0;
    for (let i = 0; i < data.length; i += 4) sum += data[i] + data[i + 1] + data[i + 2];
    run.pictures.push([at, sum / (16 * 9 * 3 * 255)]);
    if (run.start === undefined) [run.start, run.first] = [performance.now(), video.currentTime];
  };
  video.requestVideoFrameCallback(look);

  let stall;
  video.addEventListener("waiting", () => {
    if (run.start === undefined || video.seeking || stall) return;
    const { buffered, currentTime } = video;
    const ahead = buffered.length ? buffered.end(buffered.length - 1) - currentTime : 0;
    stall = { at: Date.now(), position: currentTime, ahead, length: 0 };
    run.stalls.push(stall);
  });
  for (const name of ["playing", "timeupdate"]) {
    video.addEventListener(name, () => {
      if (!stall || video.currentTime === stall.position || video.readyState < 3) return;
      stall.length = Date.now() - stall.at;
      stall = undefined;
    });
  }
  return video;
}

// keepSound keeps what a player gives the browser to hear, with the times that it has
// there: it is looked at afterwards, because what is heard when is the browser's affair.
function keepSound() {
  const { addSourceBuffer } = MediaSource.prototype;
  MediaSource.prototype.addSourceBuffer = function (type) {
    const buffer = addSourceBuffer.call(this, type);
    if (type.startsWith("audio/")) {
      const { appendBuffer } = buffer;
      let init = new Uint8Array();
      buffer.appendBuffer = (data) => {
        const bytes = new Uint8Array(ArrayBuffer.isView(data) ? data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength) : data.slice(0));
        buffer.addEventListener(
          "updateend",
          () => {
            const kind = String.fromCharCode(...bytes.subarray(4, 8));
            if (kind === "ftyp" || kind === "moov") init = bytes;
            const offset = buffer.timestampOffset;
            if (run.sound.at(-1)?.offset !== offset) run.sound.push({ offset, pieces: init === bytes ? [] : [init] });
            run.sound.at(-1).pieces.push(bytes);
          },
          { once: true },
        );
        appendBuffer.call(buffer, data);
      };
    }
    return buffer;
  };
}

window.watchHLS = async (url) => {
  keepSound();
  const player = new Hls({ lowLatencyMode: true });
  player.on(Hls.Events.ERROR, (_, data) => {
    if (data.fatal) run.fatal.push(`${data.details} ${data.response?.code ?? ""} ${data.reason ?? data.error?.message ?? ""}`);
    else run.others[data.details] = (run.others[data.details] ?? 0) + 1;
  });
  player.attachMedia(newVideo((frame) => frame.timestamp / 1e6));
  player.loadSource(url);
  change = (height) => {
    player.nextLevel = player.levels.findIndex((level) => level.height === height);
  };
};

window.watchShaka = async (url) => {
  keepSound();
  const player = new shaka.Player();
  // What it does not get it asks for again, and calls that an error too; whether it goes on
  // is seen in the picture.
  player.addEventListener("error", ({ detail }) => {
    run.others[`${detail.code} ${detail.data[1] ?? ""}`] = (run.others[`${detail.code} ${detail.data[1] ?? ""}`] ?? 0) + 1;
  });
  await player.attach(newVideo((frame) => frame.timestamp / 1e6));
  player.configure({ abr: { enabled: false } });
  try {
    await player.load(url);
  } catch (error) {
    run.fatal.push(`shaka: ${error.code} ${error.message} ${error.data}`);
  }
  change = (height) => {
    const track = player.getVariantTracks().find((track) => track.height === height);
    if (track) player.selectVariantTrack(track, true, 1);
  };
};

window.watchWHEP = async (url) => {
  const pc = new RTCPeerConnection();
  pc.addTransceiver("video", { direction: "recvonly" });
  pc.addTransceiver("audio", { direction: "recvonly" });
  newVideo((_, told) => told.expectedDisplayTime / 1000);
  pc.ontrack = ({ track, streams }) => {
    video.srcObject = streams[0];
    if (track.kind !== "audio") return;
    const heard = (at) => run.beeps.push(at);
    // The page often looks late, but at times it does at once.
    const clock = (ahead) => (run.ahead = Math.min(run.ahead, ahead));
    hear(track, heard, clock).catch((error) => run.fatal.push(`sound: ${error}`));
  };
  await exchange("viewer", pc, url);

  // What the browser itself knows: which moment of the sender's clock is heard and seen now,
  // how long sound is on its way out, and when it had nothing to show. A freeze is weir's if
  // nothing came although this page had the time to look.
  const before = { freezes: 0, frozen: 0, packets: 0, looked: 0, came: performance.now() };
  setInterval(async () => {
    const all = [...(await pc.getStats()).values()];
    const out = all.find((r) => r.type === "media-playout");
    if (out?.totalSamplesCount) run.playout = out.totalPlayoutDelay / out.totalSamplesCount;
    const stats = all.filter((r) => r.type === "inbound-rtp");
    const sound = stats.find((r) => r.kind === "audio");
    const picture = stats.find((r) => r.kind === "video");
    if (!sound || !picture) return;
    const now = performance.now();
    if (sound.estimatedPlayoutTimestamp && picture.estimatedPlayoutTimestamp) {
      run.skews.push([now / 1000, (sound.estimatedPlayoutTimestamp - picture.estimatedPlayoutTimestamp) / 1000]);
    }
    const dry = now - before.looked > 400 ? 0 : now - before.came;
    if (run.start !== undefined && picture.freezeCount > before.freezes) {
      run.stalls.push({ at: Date.now(), position: video.currentTime, ahead: 0, length: 1000 * (picture.totalFreezesDuration - before.frozen), dry });
    }
    if (dry === 0 || picture.packetsReceived > before.packets) before.came = now;
    [before.freezes, before.frozen, before.packets, before.looked] = [picture.freezeCount, picture.totalFreezesDuration, picture.packetsReceived, now];
  }, 100);
};

// state tells how it goes.
window.state = () => ({
  fatal: run.fatal,
  others: run.others,
  played: run.start === undefined ? 0 : video.currentTime - run.first,
  height: video?.videoHeight ?? 0,
  pictures: run.pictures.length,
});

// told tells all that was seen.
window.told = () => ({
  pictures: run.pictures,
  beeps: run.beeps.map((at) => at + run.ahead + run.playout),
  skews: run.skews,
  stalls: run.stalls.map((s) => ({ dry: 0, ...s, length: s.length || Date.now() - s.at })),
  sound: run.sound.map(({ offset, pieces }) => ({ offset, data: base64(pieces) })),
});

function base64(pieces) {
  let text = "";
  for (const piece of pieces) {
    for (let i = 0; i < piece.length; i += 8192) text += String.fromCharCode(...piece.subarray(i, i + 8192));
  }
  return btoa(text);
}

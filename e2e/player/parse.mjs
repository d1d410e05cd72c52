// Parses media with mp4box.js and mux.js and tells what they found, as JSON.
//
// On standard input: {"files": [{"name", "kind", "parts": [paths]}]}, where kind is
// "ts", "mp4" (progressive or fragmented, one part) or "cmaf" (the init segment, then
// segments). On standard output: for each file its tracks, with codec and number of
// samples as each parser counts them, and warnings, which should be none.

import { readFileSync } from "node:fs";
import * as MP4Box from "mp4box";
import muxjs from "mux.js";

// Whatever the parsers complain about on the console counts.
let warnings = [];
for (const level of ["warn", "error"]) console[level] = (...args) => warnings.push(args.join(" "));
MP4Box.Log.setLogLevel(MP4Box.Log.LOG_LEVEL_WARNING ?? 2);

function withMP4Box(buffers) {
  const file = MP4Box.createFile();
  file.onError = (module, message) => warnings.push(`mp4box: ${module} ${message}`);
  let info;
  file.onReady = (ready) => {
    info = ready;
    for (const track of ready.tracks) file.setExtractionOptions(track.id, null, { nbSamples: 1e9 });
    file.start();
  };
  const samples = {};
  file.onSamples = (id, _, list) => (samples[id] = (samples[id] ?? []).concat(list));
  let offset = 0;
  for (const buffer of buffers) {
    const data = buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.byteLength);
    data.fileStart = offset;
    offset += data.byteLength;
    file.appendBuffer(data);
  }
  file.flush();
  if (!info) throw new Error("mp4box: no moov");
  const tracks = info.tracks.map((track) => {
    const list = samples[track.id] ?? [];
    return {
      type: track.type,
      codec: track.codec,
      samples: list.length,
      bytes: list.reduce((sum, sample) => sum + sample.size, 0),
      duration: list.reduce((sum, sample) => sum + sample.duration, 0) / track.timescale,
      firstIsSync: list[0]?.is_sync ?? false,
      language: track.language,
    };
  });
  return { tracks, progressive: info.isProgressive, fragmented: info.isFragmented, brands: info.brands };
}

// The boxes that mux.js knows are read whole; for others it says only their size.
function withMuxJS(buffers) {
  const boxes = buffers.flatMap((buffer) => muxjs.mp4.tools.inspect(new Uint8Array(buffer)));
  const broken = boxes.filter((box) => !/^[a-z0-9 ]{4}$/i.test(box.type));
  if (broken.length) warnings.push(`mux.js: boxes ${broken.map((box) => box.type)}`);
  const moov = boxes.find((box) => box.type === "moov");
  if (!moov) throw new Error("mux.js: no moov");
  const runs = boxes.filter((box) => box.type === "moof").flatMap((moof) => moof.boxes.filter((box) => box.type === "traf").flatMap((traf) => traf.boxes.filter((box) => box.type === "trun")));
  return {
    boxes: boxes.map((box) => box.type),
    tracks: moov.boxes.filter((box) => box.type === "trak").length,
    samples: runs.reduce((sum, run) => sum + run.samples.length, 0),
  };
}

// transmux lets mux.js take a transport stream apart, as players do with it.
function transmux(buffers) {
  const transmuxer = new muxjs.mp4.Transmuxer({ remux: true, keepOriginalTimestamps: true });
  const found = { video: 0, audio: 0 };
  transmuxer.on("log", (log) => {
    if (log.level !== "debug" && log.level !== "info") warnings.push(`mux.js: ${log.level} ${log.message}`);
  });
  transmuxer.on("data", ({ data }) => {
    for (const moof of muxjs.mp4.tools.inspect(data).filter((box) => box.type === "moof")) {
      for (const traf of moof.boxes.filter((box) => box.type === "traf")) {
        const count = traf.boxes.filter((box) => box.type === "trun").reduce((sum, run) => sum + run.samples.length, 0);
        const { trackId } = traf.boxes.find((box) => box.type === "tfhd");
        found[trackId === 0x100 ? "video" : "audio"] += count;
        found[`track${trackId}`] = (found[`track${trackId}`] ?? 0) + count;
      }
    }
  });
  const times = [];
  for (const buffer of buffers) {
    const bytes = new Uint8Array(buffer);
    transmuxer.push(bytes);
    transmuxer.flush();
    const { video, audio } = muxjs.mp2t.tools.inspect(bytes) ?? {};
    times.push({ video: video?.map((v) => v.ptsTime), audio: audio?.map((a) => a.ptsTime) });
  }
  return { found, times };
}

const { files } = JSON.parse(readFileSync(0, "utf8"));
const results = files.map(({ name, kind, parts }) => {
  warnings = [];
  const result = { name };
  try {
    const buffers = parts.map((path) => readFileSync(path));
    if (kind === "ts") result.ts = transmux(buffers);
    else {
      result.mp4box = withMP4Box(buffers);
      result.muxjs = withMuxJS(buffers);
    }
  } catch (error) {
    warnings.push(`${error.stack}`);
  }
  return { ...result, warnings };
});
process.stdout.write(JSON.stringify(results));

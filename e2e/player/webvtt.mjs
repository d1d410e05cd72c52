// Reads WebVTT files with the parser of the W3C, which complains about everything that the standard
// does not allow. On standard input: {"files": [paths]}. On standard output: for each file its cues,
// and complaints, which should be none.

import { readFileSync } from "node:fs";
import webvtt from "webvtt-parser";

const { WebVTTParser } = webvtt;
const { files } = JSON.parse(readFileSync(0, "utf8"));
const results = files.map((file) => {
  // The line that HLS adds to the header is metadata for this parser.
  const text = readFileSync(file, "utf8").replace(/^X-TIMESTAMP-MAP=.*\n/m, "");
  const { cues, errors } = new WebVTTParser().parse(text);
  return {
    cues: cues.map(({ startTime, endTime, text }) => ({ start: startTime, end: endTime, text })),
    complaints: errors.map(({ message, line }) => `${file}:${line}: ${message}`),
  };
});
process.stdout.write(JSON.stringify(results));

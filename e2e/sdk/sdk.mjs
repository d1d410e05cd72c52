// Drives every operation of the official JavaScript SDK against a running weir. The
// SDK validates each answer against its own models and throws when one does not fit;
// beyond that, the cases look at the members that matter, and hold the members of
// single objects against those the SDK knows.
//
// Environment:
//   WEIR_URL   base of the API: http://127.0.0.1:8080/api. The server must allow
//              127.0.0.0/8, where this script receives webhooks.
//   WEIR_KEY   an API key
//   WEIR_SEED  what only media can make, as JSON; everything belongs to the key's
//              account and project:
//     streamId    a stream, not active
//     sessionId   its finished session of some seconds, with record on; the asset with
//                 the same id, its recording, is ready and has an MP4
//     assetId     a ready asset with size and videoSpec, public; may be the recording
//     playbackId  of that asset
//     clipId      a ready asset with source {type: "clip", sessionId, playbackId}, cut
//                 from that session
//     taskId      the completed task of type upload that made assetId
//     views       how many views of playbackId there are, all of them over
//     file        the path of a short video, and sourceUrl, where it can be fetched
//     storage     a bucket: {type: "s3", endpoint, bucket, credentials}
//
// Prints one line for each case, and exits with 1 if one failed or if an operation of
// the SDK was left out.

import assert from "node:assert/strict";
import { credentials, metrics, signingKeys } from "./account.mjs";
import { multistreamTargets, sessions, streams } from "./live.mjs";
import { Receiver } from "./receiver.mjs";
import { transcoding, uploads } from "./media.mjs";
import { assets, playback, tasks } from "./stored.mjs";
import { Suite } from "./tap.mjs";
import { webhooks } from "./webhook.mjs";

// What weir does not have, or what needs media to be on its way.
const exceptions = [
  "room.*",
  "generate.*",
  "stream.startPull",
];

const { WEIR_URL, WEIR_KEY, WEIR_SEED } = process.env;
assert.ok(WEIR_URL && WEIR_KEY && WEIR_SEED, "WEIR_URL, WEIR_KEY and WEIR_SEED must be set");
const seed = JSON.parse(WEIR_SEED);
for (const member of ["streamId", "sessionId", "assetId", "playbackId", "clipId", "taskId", "views", "file", "sourceUrl", "storage"]) {
  assert.ok(seed[member] !== undefined, `WEIR_SEED has no ${member}`);
}

const suite = new Suite(WEIR_URL, WEIR_KEY);
const receiver = await new Receiver().start();
const run = { suite, test: suite.test.bind(suite), call: suite.call.bind(suite), seed, receiver, url: WEIR_URL };

await streams(run);
await multistreamTargets(run);
await sessions(run);
await assets(run);
await tasks(run);
await playback(run);
await uploads(run);
await transcoding(run);
await signingKeys(run);
await webhooks(run);
await metrics(run);
await credentials(run);

await receiver.stop();
process.exitCode = await suite.finish(exceptions);

// Drives the official JavaScript SDK while a stream is on air: every operation of streams,
// sessions, multistream targets and playback, before, during and after a broadcast, and
// beside it a webhook that must be told of all of it in the order in which it happens.
//
// Environment:
//   WEIR_URL    base of the API. The server must allow 127.0.0.0/8.
//   WEIR_KEY    an API key
//   WEIR_STAGE  what is needed beside it, as JSON:
//     ingest    where encoders send to, without the stream key
//     clip      a file with H.264 of 320x180 and AAC, of some seconds
//     platform  an RTMP server: addr, command, and folder, where it records
//
// Prints one line for each case and ends at the first that fails, because each builds on
// those before it.

import assert from "node:assert/strict";
import { checkOwned, eventually, fails, includes, noSecret, notPlayable, sameMembers, unknownId, uuid } from "./check.mjs";
import { Told, names } from "./live-events.mjs";
import { Encoder, Platform } from "./live-stage.mjs";
import { Receiver } from "./receiver.mjs";
import { Suite } from "./tap.mjs";

// What has nothing to do with streams on air.
const exceptions = ["room.*", "generate.*", "asset.*", "task.*", "transcode.*", "webhook.*", "accessControl.*", "metrics.getUsage"];

const { WEIR_URL, WEIR_KEY, WEIR_STAGE } = process.env;
assert.ok(WEIR_URL && WEIR_KEY && WEIR_STAGE, "WEIR_URL, WEIR_KEY and WEIR_STAGE must be set");
const { ingest, clip, platform: server } = JSON.parse(WEIR_STAGE);

const profiles = [{ name: "small", width: 228, height: 128, bitrate: 100_000, fps: 0 }];
const counters = ["sourceSegments", "transcodedSegments", "sourceSegmentsDuration", "transcodedSegmentsDuration", "sourceBytes", "transcodedBytes"];
const sharedSecret = "a secret between the two of us";

const suite = new Suite(WEIR_URL, WEIR_KEY);
const call = suite.call.bind(suite);
const receiver = await new Receiver().start();
const encoder = new Encoder(clip);
const platform = new Platform(server);
const base = WEIR_URL.replace(/\/api$/, "");

let broken = false;
async function test(operation, what, check) {
  if (broken) return;
  await suite.test(operation, what, async (run) => {
    try {
      await check(run);
    } catch (error) {
      broken = true;
      throw error;
    }
  });
}

// getStream and getSession return what the API tells, in which nothing is that the SDK
// does not know, but for the asset of a recording.
async function getStream() {
  const { stream } = await call("stream.get", id);
  sameMembers(suite.raw, stream);
  return stream;
}

async function getSession(sessionId) {
  const { session } = await call("session.get", sessionId);
  const { assetId = sessionId, ...known } = suite.raw;
  assert.equal(assetId, sessionId);
  sameMembers(known, session);
  return session;
}

// checkHealth looks whether a stream or a session is healthy unless there are issues, and
// which targets these name. There may be others: a busy machine makes them.
function checkHealth({ isHealthy, issues }, ...failing) {
  assert.equal(isHealthy, issues === undefined, `isHealthy, with the issues ${issues}`);
  const named = targets.filter(({ name }) => issues?.some((issue) => issue.includes(name)));
  assert.deepEqual(named, failing, `targets that the issues name: ${issues}`);
}

// plays returns what playback info tells of the stream.
async function plays(live) {
  const { playbackInfo } = await call("playback.get", playbackId);
  sameMembers(suite.raw, playbackInfo);
  assert.equal(playbackInfo.type, "live");
  assert.equal(playbackInfo.meta.live, live, "meta.live");
  return playbackInfo.meta.source.map((source) => [source.hrn, source.type, source.url]);
}

// resting waits until the stream is off air, and all of it says so.
async function resting() {
  const stream = await eventually(async () => {
    const stream = await getStream();
    assert.equal(stream.isActive, false);
    return stream;
  });
  for (const member of ["isHealthy", "issues", "ingestRate", "outgoingRate"]) assert.equal(stream[member], undefined, member);
  return stream;
}

let id; // of the stream
let playbackId;
let key;
let first; // session
let second;
const platformUrl = `rtmp://${server.addr}/live`;
const targets = [{ name: "first platform", profile: "source" }, { name: "second platform", profile: "small" }];

const { webhook } = await call("webhook.create", { name: "of streams", url: `${receiver.url}/hook`, events: names, sharedSecret });
const told = new Told(receiver, webhook.id, sharedSecret);
await platform.open();

await prepare();
await goOnAir();
await look();
await change();
await loseThePlatform();
await comeBack();
await terminate();
await suspend();
await pull();
await remove();

if (encoder.running) await encoder.leave();
if (platform.running) await platform.fail();
await receiver.stop();
process.exitCode = await suite.finish(exceptions);

async function prepare() {
  await test("multistream.create", "a platform", async (create) => {
    const { statusCode, multistreamTarget } = await create({ name: targets[0].name, url: `${platformUrl}/hush-first` });
    assert.equal(statusCode, 201);
    sameMembers(suite.raw, multistreamTarget);
    targets[0].id = multistreamTarget.id;
  });

  await test("stream.create", "recorded and sent on", async (create) => {
    const { statusCode, stream } = await create({ name: "on air", record: true, profiles, multistream: { targets: [{ profile: "source", id: targets[0].id }] } });
    assert.equal(statusCode, 201);
    sameMembers(suite.raw, stream);
    ({ id, playbackId, streamKey: key } = stream);
    assert.equal(stream.isActive, false);
    assert.equal(stream.lastSeen, 0);
  });

  await test("playback.get", "before the stream was ever on air", async () => {
    // weir has no WebRTC here, and there is no picture of it yet.
    assert.deepEqual(await plays(0), [["HLS (TS)", "html5/application/vnd.apple.mpegurl", `${base}/hls/${playbackId}/index.m3u8`]]);
  });

  await test("session.getRecorded", "none before it was on air", async (getRecorded) => {
    assert.deepEqual((await getRecorded(id)).data, []);
  });
}

async function goOnAir() {
  const began = Date.now();

  await test("stream.get", "active, healthy and recorded as soon as an encoder sends", async () => {
    encoder.send(`${ingest}/${key}`);
    const started = await told.next("stream.started", id);
    first = started.payload.session.id;
    assert.equal((await told.next("recording.started", id)).payload.session.id, first);
    const stream = await getStream();
    assert.equal(stream.isActive, true);
    assert.equal(stream.isHealthy, true);
    assert.equal(stream.issues, undefined);
    assert.ok(stream.lastSeen >= began, "lastSeen");
    assert.equal(stream.lastTerminatedAt, null);
  });

  await test("stream.addMultistreamTarget", "while on air", async (add) => {
    const url = `${platformUrl}/hush-second`;
    const { statusCode } = await add({ profile: "small", spec: { name: targets[1].name, url } }, id);
    assert.equal(statusCode, 200);
    noSecret(suite.raw, url);
    assert.equal(suite.raw.name, targets[1].name);
    targets[1].id = suite.raw.id;
    const { multistream } = await getStream();
    assert.deepEqual(multistream.targets.map((t) => [t.id, t.profile]), targets.map((t) => [t.id, t.profile]));
  });

  await test("stream.get", "what it carries grows", async () => {
    const some = await eventually(async () => {
      const stream = await getStream();
      for (const member of [...counters, "ingestRate", "outgoingRate"]) assert.ok(stream[member] > 0, member);
      return stream;
    });
    assert.ok(some.sourceSegmentsDuration >= some.sourceSegments, "segments are longer than a second");
    await eventually(async () => {
      const more = await getStream();
      for (const member of [...counters, "lastSeen"]) assert.ok(more[member] > some[member], member);
    });
  });
}

// look reads everything there is to read of a stream that is on air.
async function look() {
  await test("stream.getAll", "has it, active", async (getAll) => {
    const { data } = await getAll();
    assert.deepEqual(data.map((stream) => [stream.id, stream.isActive]), [[id, true]]);
  });

  await test("session.get", "of a stream on air", async () => {
    const session = await getSession(first);
    checkOwned(session);
    const stream = await getStream();
    assert.equal(session.kind, "session");
    assert.equal(session.name, stream.name);
    assert.equal(session.parentId, id);
    assert.equal(session.playbackId, playbackId);
    checkHealth(session);
    assert.equal(session.record, true);
    assert.equal(session.recordingStatus, "waiting");
    assert.equal(session.recordingUrl, undefined);
    assert.equal(session.mp4Url, undefined);
    assert.deepEqual(session.profiles, stream.profiles);
    for (const member of [...counters, "ingestRate", "outgoingRate"]) {
      assert.ok(session[member] > 0 && stream[member] > 0, member);
      // It is the only session, and the stream was asked later.
      if (counters.includes(member)) assert.ok(stream[member] >= session[member], member);
    }
  });

  await test("session.getAll", "has it, with its stream", async (getAll) => {
    const { data } = await getAll();
    assert.deepEqual(data.map((session) => [session.id, session.parentId]), [[first, id]]);
    noSecret(suite.raw, key);
  });

  await test("session.getRecorded", "by whether it is recorded", async (getRecorded) => {
    for (const [record, expected] of [[undefined, [first]], [true, [first]], [false, []]]) {
      const { data } = await getRecorded(id, record);
      assert.deepEqual(data.map((session) => session.id), expected, `record ${record}`);
    }
  });

  await test("playback.get", "on air", async (get) => {
    const [[, , hls], ...others] = await plays(1);
    assert.deepEqual(others.map(([hrn, type]) => [hrn, type]), [["Thumbnail (JPEG)", "image/jpeg"]]);
    await watch(hls);
    await notPlayable(get(first), first); // its recording is not there yet
    await notPlayable(get(id), id);
  });

  const counted = async ({ statusCode, data }) => {
    assert.equal(statusCode, 200);
    assert.deepEqual(data.map((row) => row.viewCount), [1]);
  };
  await test("metrics.getRealtimeViewership", "one viewer", (query) => eventually(async () => counted(await query(playbackId))));
  await test("metrics.getViewership", "one view", async (query) => counted(await query({ playbackId })));
  await test("metrics.getCreatorViewership", "one view", async (query) => counted(await query({ streamId: id })));
  await test("metrics.getPublicViewership", "one view", async (query) => {
    assert.equal((await query(playbackId)).data.viewCount, 1);
  });

  await test("stream.getClips", "there are none", async (getClips) => assert.deepEqual((await getClips(id)).data, []));
  await test("session.getClips", "there are none", async (getClips) => assert.deepEqual((await getClips(first)).data, []));
  let clip;
  await test("stream.createClip", "of what was on air a moment ago", async (createClip) => {
    // The stream must have been on air for so long.
    const { statusCode, data } = await eventually(() => createClip({ playbackId, startTime: Date.now() - 3000, endTime: Date.now() - 1000.5, name: "moment" }));
    assert.equal(statusCode, 200);
    sameMembers(suite.raw, data);
    sameMembers(suite.raw.asset, data.asset);
    clip = data.asset;
    assert.equal(clip.name, "moment");
    assert.deepEqual({ ...clip.source }, { type: "clip", sessionId: first, playbackId });
    assert.match(data.task.id, uuid);
    assert.equal((await call("task.get", data.task.id)).task.type, "clip");
    const { asset } = await eventually(async () => {
      const answer = await call("asset.get", clip.id);
      assert.equal(answer.asset.status.phase, "ready", JSON.stringify(answer.asset.status));
      return answer;
    });
    sameMembers(suite.raw, asset);
    assert.ok(Math.abs(asset.videoSpec.duration - 2) < 0.1, `a clip of 2 s lasts ${asset.videoSpec.duration} s`);
    for (const url of [asset.playbackUrl, asset.downloadUrl]) assert.equal((await fetch(url)).status, 200, url);
  });
  for (const [operation, of] of [["stream.getClips", id], ["session.getClips", first]]) {
    await test(operation, "has it", async (getClips) => {
      const { data } = await getClips(of);
      assert.deepEqual(data.map((asset) => asset.id), [clip.id]);
      assert.deepEqual({ ...data[0].source }, { type: "clip", sessionId: first, playbackId });
    });
  }
  await test("stream.createClip", "refuses what it can't cut", async (createClip) => {
    const now = Date.now();
    await fails(createClip({ playbackId, startTime: now - 1000, endTime: now - 2000 }), 422, /^endTime must occur after startTime$/);
    await fails(createClip({ playbackId, startTime: Math.floor(now / 1000) - 3, endTime: Math.floor(now / 1000) }), 422, /milliseconds/);
    await fails(createClip({ playbackId, startTime: now - 3_600_000, endTime: now - 3_500_000 }), 422, /available: /);
    await fails(createClip({ playbackId, startTime: now - 1000, endTime: now + 40_000 }), 422, /in the future/);
    await fails(createClip({ playbackId: "0000000000000000", startTime: now - 2000, endTime: now - 1000 }), 404, /^Content not found$/);
    await fails(createClip({ playbackId, sessionId: unknownId, startTime: now - 2000, endTime: now - 1000 }), 404, /^Session not found$/);
  });
}

// watch fetches the first segment of each rendition, as a player does.
async function watch(master) {
  const list = async (url) => {
    const answer = await fetch(url);
    assert.equal(answer.status, 200, url);
    return (await answer.text()).split("\n").filter((line) => line && !line.startsWith("#")).map((line) => new URL(line, url).href);
  };
  const variants = await list(master);
  assert.equal(variants.length, 2, "the source and one rendition");
  for (const variant of variants) {
    const [segment] = await list(variant);
    const answer = await fetch(segment);
    assert.equal(answer.status, 200, segment);
    assert.ok((await answer.arrayBuffer()).byteLength > 0, segment);
  }
}

// change alters what may be altered of a stream that is on air.
async function change() {
  await test("stream.update", "its name and tags, on air", async (update) => {
    assert.equal((await update({ name: "renamed", userTags: { team: "red" }, record: true }, id)).statusCode, 204);
    const stream = await getStream();
    assert.equal(stream.name, "renamed");
    assert.deepEqual(stream.userTags, { team: "red" });
    assert.equal(stream.isActive, true);
  });

  await test("stream.update", "400 for what must not change on air", async (update) => {
    await fails(update({ record: false }, id), 400, /^cannot change 'record' field while stream is active$/);
    await fails(update({ profiles }, id), 400, /^cannot change 'profiles' field while stream is active$/);
  });

  await test("stream.startPull", "400 for a stream that is not pulled", (startPull) =>
    fails(startPull(id), 400, /^stream does not have a pull source$/));

  await test("multistream.getAll", "the targets, which get the stream", async (getAll) => {
    const { data } = await getAll();
    includes(data, ...targets.map((t) => t.id));
    noSecret(suite.raw, "hush");
    await told.nextTargets("multistream.connected", id, targets);
    await Promise.all(["hush-first", "hush-second"].map((key) => platform.gets(key)));
    checkHealth(await getStream());
  });
}

async function loseThePlatform() {
  await test("stream.get", "names the targets that get nothing", async () => {
    await platform.fail();
    await told.nextTargets("multistream.error", id, targets);
    await eventually(async () => {
      for (const object of [await getStream(), await getSession(first)]) {
        checkHealth(object, ...targets);
        noSecret(object, "hush");
      }
    });
  });

  await test("stream.removeMultistreamTarget", "while on air", async (remove) => {
    assert.equal((await remove(id, targets[1].id)).statusCode, 204);
    await told.nextTargets("multistream.disconnected", id, [targets[1]]);
    assert.deepEqual((await getStream()).multistream.targets, [{ profile: "source", videoOnly: false, id: targets[0].id }]);
  });

  await test("multistream.update", "disabled, of which nobody complains", async (update) => {
    assert.equal((await update({ url: `${platformUrl}/hush-first`, disabled: true }, targets[0].id)).statusCode, 204);
    await told.nextTargets("multistream.disconnected", id, [targets[0]]);
    await eventually(async () => checkHealth(await getStream()));
  });

  await test("multistream.get", "as it was changed", async (get) => {
    const { multistreamTarget } = await get(targets[0].id);
    sameMembers(suite.raw, multistreamTarget);
    assert.equal(multistreamTarget.disabled, true);
  });

  await test("multistream.delete", "takes it from the stream", async (remove) => {
    assert.equal((await remove(targets[0].id)).statusCode, 204);
    assert.deepEqual((await getStream()).multistream.targets, []);
  });
}

async function comeBack() {
  await test("stream.get", "idle when the encoder leaves, and its session waits", async () => {
    await encoder.leave();
    assert.equal((await told.next("stream.idle", id)).payload.session.id, first);
    await resting();
    await plays(0);
    assert.equal((await getSession(first)).recordingStatus, "waiting");
  });

  await test("session.getAll", "one, also after the encoder has come back", async (getAll) => {
    const before = await getSession(first);
    encoder.send(`${ingest}/${key}`);
    assert.equal((await told.next("stream.started", id)).payload.session.id, first);
    await plays(1);
    await eventually(async () => {
      const { data } = await getAll();
      assert.deepEqual(data.map((session) => session.id), [first]);
      assert.ok(data[0].sourceBytes > before.sourceBytes && data[0].lastSeen > before.lastSeen, "it goes on");
    });
  });
}

async function terminate() {
  await test("stream.terminate", "once, ends the session, which is kept", async (terminate) => {
    const asked = Date.now();
    assert.equal((await terminate(id)).statusCode, 204);
    await fails(terminate(id), 429, /^too many terminate requests$/);
    await encoder.cut();
    assert.equal((await told.next("stream.idle", id)).payload.session.id, first);
    assert.equal((await told.next("recording.waiting", id)).payload.session.id, first);
    const stream = await resting();
    assert.ok(stream.lastTerminatedAt >= asked, "lastTerminatedAt");
    await plays(0);
  });

  await test("session.get", "with its recording", async () => {
    const ready = await told.next("recording.ready", id);
    const session = await getSession(first);
    assert.equal(session.recordingStatus, "ready");
    for (const member of ["recordingUrl", "mp4Url"]) {
      assert.equal((await fetch(session[member], { method: "HEAD" })).status, 200, member);
      assert.equal(new URL(ready.payload[member]).pathname, new URL(session[member]).pathname, member);
    }
    for (const member of counters) assert.equal(ready.payload.session[member], session[member], member);
  });

  await test("playback.get", "of the session, which is a recording now", async (get) => {
    const { playbackInfo } = await get(first);
    sameMembers(suite.raw, playbackInfo);
    assert.equal(playbackInfo.type, "recording");
    assert.deepEqual(playbackInfo.meta.source.map((s) => [s.hrn, s.url]), [["HLS (TS)", (await getSession(first)).recordingUrl]]);
  });
}

async function suspend() {
  await test("session.getRecorded", "another when the encoder comes back after that", async (getRecorded) => {
    encoder.send(`${ingest}/${key}`);
    second = (await told.next("stream.started", id)).payload.session.id;
    assert.match(second, uuid);
    assert.notEqual(second, first);
    assert.equal((await told.next("recording.started", id)).payload.session.id, second);
    await eventually(async () => assert.ok((await getSession(second)).sourceSegments > 0, "sourceSegments"));
    const { data } = await getRecorded(id, true);
    assert.deepEqual(data.map((session) => [session.id, session.recordingStatus]), [[second, "waiting"], [first, "ready"]]);
  });

  await test("stream.update", "suspended: cut off, and nobody can play it", async (update) => {
    assert.equal((await update({ suspended: true }, id)).statusCode, 204);
    await encoder.cut();
    for (const name of ["stream.idle", "recording.waiting", "recording.ready"]) {
      assert.equal((await told.next(name, id)).payload.session.id, second);
    }
    assert.equal((await resting()).suspended, true);
    await notPlayable(call("playback.get", playbackId), playbackId);
    await update({ suspended: false }, id);
    await plays(0);
  });
}

async function pull() {
  let pulled;
  await test("stream.startPull", "from the recording of the other stream", async (startPull) => {
    const source = (await getSession(first)).mp4Url;
    ({ stream: pulled } = await call("stream.create", { name: "pulled", pull: { source }, profiles: [] }));
    assert.equal((await startPull(pulled.id)).statusCode, 204);
    const { session } = (await told.next("stream.started", pulled.id)).payload;
    const { stream } = await call("stream.get", pulled.id);
    sameMembers(suite.raw, stream);
    assert.equal(stream.isActive, true);
    assert.equal(stream.pull.source, source);
    const now = await getSession(session.id);
    assert.equal(now.record, false);
    assert.equal(now.recordingStatus, undefined);
    assert.deepEqual(now.profiles, []);
  });

  await test("stream.delete", "while on air", async (remove) => {
    assert.equal((await remove(pulled.id)).statusCode, 204);
    await told.next("stream.idle", pulled.id);
    await fails(call("stream.get", pulled.id), 404, /^not found$/);
    await notPlayable(call("playback.get", pulled.playbackId), pulled.playbackId);
  });
}

async function remove() {
  await test("stream.delete", "its sessions and their recordings stay", async (remove) => {
    assert.equal((await remove(id)).statusCode, 204);
    await notPlayable(call("playback.get", playbackId), playbackId);
    for (const sessionId of [first, second]) {
      assert.equal((await getSession(sessionId)).recordingStatus, "ready");
      assert.equal((await call("playback.get", sessionId)).playbackInfo.type, "recording");
    }
    told.allRead();
  });
}

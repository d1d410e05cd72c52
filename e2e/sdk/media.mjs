// What takes media on its way: uploads, and files that are transcoded to a bucket.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { checkUrl, eventually, fails, noSecret, sameMembers } from "./check.mjs";

// done waits until a task has ended, and returns it.
function done(call, id) {
  return eventually(async () => {
    const { task } = await call("task.get", id);
    assert.ok(["completed", "failed", "cancelled"].includes(task.status.phase), `the task is ${JSON.stringify(task.status)}`);
    return task;
  });
}

// uploads sends a file to where the SDK was told, and imports one from a URL.
export async function uploads({ suite, test, call, seed }) {
  const profiles = [{ name: "tiny", width: 228, height: 128, bitrate: 150_000, fps: 25 }];
  let made;
  await test("asset.create", "and the file is sent", async (create) => {
    const { data } = await create({ name: "sent", profiles, staticMp4: true });
    const answer = await fetch(data.url, { method: "PUT", body: await readFile(seed.file) });
    assert.equal(answer.status, 200);
    const task = await done(call, data.task.id);
    assert.equal(task.status.phase, "completed", task.status.errorMessage);
    assert.equal(task.output.upload.assetSpec.id, data.asset.id);
    made = data.asset;
  });

  await test("asset.get", "one that was sent", async (get) => {
    const { asset } = await get(made.id);
    sameMembers(suite.raw, asset);
    assert.equal(asset.status.phase, "ready");
    assert.equal(asset.hash[0].algorithm, "sha256");
    assert.ok(asset.size > 0 && asset.videoSpec.duration > 0, "size and duration");
    checkUrl(asset.downloadUrl);
    const playlist = await (await fetch(asset.playbackUrl)).text();
    assert.match(playlist, /^#EXTM3U/);
  });

  await test("playback.get", "of one that was sent", async (get) => {
    const { playbackInfo } = await get(made.playbackId);
    sameMembers(suite.raw, playbackInfo);
    for (const source of playbackInfo.meta.source) {
      checkUrl(source.url);
      assert.equal((await fetch(source.url)).status, 200, source.url);
    }
    const kinds = playbackInfo.meta.source.map((s) => s.hrn);
    for (const kind of ["HLS (TS)", "MP4", "Thumbnails"]) assert.ok(kinds.includes(kind), `${kind} in ${kinds}`);
  });

  await test("stream.createClip", "of one that was sent, by the time from its start", async (createClip) => {
    const { statusCode, data } = await createClip({ playbackId: made.playbackId, startTime: 310, endTime: 1290.5 });
    assert.equal(statusCode, 200);
    sameMembers(suite.raw.asset, data.asset);
    assert.deepEqual({ ...data.asset.source }, { type: "clip", assetId: made.id, playbackId: made.playbackId });
    const task = await done(call, data.task.id);
    assert.equal(task.status.phase, "completed", task.status.errorMessage);
    const { asset } = await call("asset.get", data.asset.id);
    assert.equal(asset.status.phase, "ready");
    assert.equal(asset.name, `clip-${asset.playbackId}`);
    assert.ok(Math.abs(asset.videoSpec.duration - 1) < 0.05, `25 frames last ${asset.videoSpec.duration} s`);
  });

  await test("asset.createViaUrl", "and it is imported", async (create) => {
    const { twoHundredAndOneApplicationJsonData: data } = await create({ name: "imported", url: seed.sourceUrl, profiles });
    const task = await done(call, data.task.id);
    assert.equal(task.status.phase, "completed", task.status.errorMessage);
    const { asset } = await call("asset.get", data.asset.id);
    assert.equal(asset.status.phase, "ready");
  });
}

export async function transcoding({ suite, test, call, seed }) {
  const request = {
    input: { url: seed.sourceUrl },
    storage: seed.storage,
    outputs: { hls: { path: "/sdk/hls" }, mp4: { path: "/sdk/mp4" }, fmp4: { path: "/sdk/fmp4" } },
    profiles: [{ name: "tiny", width: 228, height: 128, bitrate: 150_000, encoder: "H.264" }],
    targetSegmentSizeSecs: 2,
    creatorId: "creator-4",
  };

  await test("transcode.create", "to a bucket", async (create) => {
    const { statusCode, task } = await create(request);
    assert.equal(statusCode, 200);
    noSecret(suite.raw, seed.storage.credentials.secretAccessKey);
    assert.equal(task.type, "transcode-file");
    assert.equal(task.status.phase, "pending");
    const end = await done(call, task.id);
    assert.equal(end.status.phase, "completed", end.status.errorMessage);
    const { transcodeFile } = suite.raw.output; // which no SDK has a model of
    assert.equal(transcodeFile.hls.path, "/sdk/hls/index.m3u8");
    assert.deepEqual(transcodeFile.mp4, [{ path: "/sdk/mp4/tiny.mp4" }]);
    assert.equal(transcodeFile.fmp4.dash, "/sdk/fmp4/fmp4/index.mpd");
    noSecret(suite.raw, seed.storage.credentials.secretAccessKey);
  });

  await test("transcode.create", "422 for a key that the storage does not know", (create) =>
    fails(create({ ...request, storage: { ...seed.storage, credentials: { accessKeyId: "nobody", secretAccessKey: "nothing" } } }), 422, /the storage at .* refused/));
}

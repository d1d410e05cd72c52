// What belongs to the account: signing keys, figures, and the key of the API itself.

import assert from "node:assert/strict";
import { createPrivateKey, createPublicKey } from "node:crypto";
import { checkOwned, fails, includes, noSecret, sameMembers, unknownId } from "./check.mjs";
import { Suite } from "./tap.mjs";

export async function signingKeys({ suite, test, call }) {
  let id;
  let publicKey;
  await test("accessControl.create", "a pair of which the private half is shown once", async (create) => {
    const { statusCode, signingKey } = await create();
    assert.equal(statusCode, 200);
    const { privateKey, ...rest } = suite.raw;
    sameMembers(rest, signingKey);
    checkOwned(signingKey);
    assert.ok(signingKey.name, "name");
    assert.equal(signingKey.disabled ?? false, false);
    id = signingKey.id;
    publicKey = signingKey.publicKey;

    const spki = createPublicKey(Buffer.from(publicKey, "base64").toString("utf8"));
    assert.equal(spki.asymmetricKeyDetails.namedCurve, "prime256v1");
    const pkcs8 = createPrivateKey(Buffer.from(privateKey, "base64").toString("utf8"));
    assert.ok(createPublicKey(pkcs8).equals(spki), "the halves belong together");
  });

  await test("accessControl.getAll", "has it, without the private half", async (getAll) => {
    const { statusCode, data } = await getAll();
    assert.equal(statusCode, 200);
    includes(data, id);
    assert.ok(suite.raw.every((key) => !("privateKey" in key)), "no privateKey");
  });

  await test("accessControl.update", "name and disabled", async (update) => {
    const { statusCode } = await update({ name: "renamed", disabled: true }, id);
    assert.equal(statusCode, 204);
  });

  await test("accessControl.get", "as it was changed", async (get) => {
    const { statusCode, signingKey } = await get(id);
    assert.equal(statusCode, 200);
    sameMembers(suite.raw, signingKey);
    assert.equal(signingKey.id, id);
    assert.equal(signingKey.name, "renamed");
    assert.equal(signingKey.disabled, true);
    assert.equal(signingKey.publicKey, publicKey);
  });

  await test("accessControl.delete", "is gone afterwards", async (remove) => {
    assert.equal((await remove(id)).statusCode, 204);
    await fails(call("accessControl.get", id), 404, /^not found$/);
  });
}

export async function metrics({ suite, test, call, seed }) {
  const total = (rows) => rows.reduce((sum, row) => sum + row.viewCount, 0);
  const playtime = (rows) => rows.reduce((sum, row) => sum + row.playtimeMins, 0);
  const check = ({ statusCode, data }) => {
    assert.equal(statusCode, 200);
    assert.ok(Array.isArray(data), "data");
    assert.equal(total(data), seed.views);
    assert.ok(playtime(data) >= 0, "playtimeMins");
  };
  const { playbackId, assetId, streamId } = seed;

  await test("metrics.getViewership", "of a playback id", async (query) => check(await query({ playbackId })));
  await test("metrics.getViewership", "of an asset", async (query) => check(await query({ assetId })));
  await test("metrics.getViewership", "in steps and broken down", async (query) => {
    const result = await query({ playbackId, from: new Date(0), to: Date.now() + 3_600_000, timeStep: "day", breakdownBy: ["playbackId", "country"] });
    check(result);
    for (const row of result.data.filter((r) => r.viewCount > 0)) {
      assert.equal(row.playbackId, playbackId);
      assert.ok(row.timestamp > 0, "timestamp");
    }
  });
  await test("metrics.getViewership", "404 for an unknown asset", (query) => fails(query({ assetId: unknownId }), 404, /asset not found/));

  await test("metrics.getCreatorViewership", "of an asset", async (query) => check(await query({ assetId })));
  await test("metrics.getCreatorViewership", "of a stream", async (query) => {
    const { statusCode, data } = await query({ streamId });
    assert.equal(statusCode, 200);
    assert.equal(typeof total(data), "number");
  });
  await test("metrics.getCreatorViewership", "400 for neither", (query) =>
    fails(query({}), 400, /must provide exactly 1 of assetId or streamId for creator query/));

  await test("metrics.getRealtimeViewership", "nobody watches", async (query) => {
    for (const args of [[playbackId], [undefined, "creator-1"], [playbackId, undefined, ["playbackId", "device", "browser", "country"]]]) {
      const { statusCode, data } = await query(...args);
      assert.equal(statusCode, 200);
      assert.equal(total(data), 0);
    }
  });

  await test("metrics.getPublicViewership", "the total", async (query) => {
    const { statusCode, data } = await query(playbackId);
    assert.equal(statusCode, 200);
    sameMembers(suite.raw, data);
    assert.equal(data.playbackId, playbackId);
    assert.equal(data.viewCount, seed.views);
  });

  for (const [what, query] of [["of all time", {}], ["of a day", { from: Date.now() - 86_400_000, to: Date.now() }]]) {
    await test("metrics.getUsage", what, async (getUsage) => {
      const { statusCode, usageMetric } = await getUsage(query);
      assert.equal(statusCode, 200);
      sameMembers(suite.raw, usageMetric);
      const { asset } = await call("asset.get", assetId);
      assert.equal(usageMetric.userID, asset.userId);
      for (const member of ["deliveryUsageMins", "totalUsageMins", "storageUsageMins"]) {
        assert.ok(usageMetric[member] >= 0, member);
      }
    });
  }
}

export async function credentials({ test, url }) {
  await test("stream.getAll", "401 for a key that does not exist", async () => {
    const wrong = "not-a-key-of-anybody";
    const stranger = new Suite(url, wrong);
    await fails(stranger.call("stream.getAll"), 401, /^API key not valid$/);
    noSecret(stranger.raw, wrong);
  });
}

// Plays the video with the playback id of the page, and says in words how that goes. It asks
// again and again for a stream that is not on air, so that nobody needs to reload.
'use strict';

(() => {
  const $ = (id) => document.getElementById(id);
  const {id, kind, seen} = document.body.dataset;
  const live = kind === 'live';
  const video = $('video');

  // Credentials of the viewer, and ll=0, which turns low latency off.
  const given = new URLSearchParams(location.search);
  const shown = new URLSearchParams();
  for (const name of ['jwt', 'accessKey', 'll']) {
    if (given.has(name)) shown.set(name, given.get(name));
  }
  const query = String(shown) && '?' + shown;
  const folder = '../hls/' + encodeURIComponent(id) + '/';
  const source = new URL(folder + 'index.m3u8' + query, location.href).href;
  const info = '../api/playback/' + encodeURIComponent(id);

  const retryAfter = live ? 2000 : 5000;
  const stalledAfter = 4000;
  const endedAfter = 1500;
  let hls = null;
  let playingFrag = null; // the segment that is shown; null = not known
  let onFrag = () => {}; // called with it
  let timer = 0;
  let over = seen === 'true'; // the stream was on air, and the last thing known of it is its end
  let growing = false; // the playlist says that more will be added to it
  let closing = false; // the playlist of a stream says that nothing will be added to it
  let asked = 0; // when the server was last asked whether a stalled stream is on air
  let moved = Date.now(); // when the picture last did
  let at = 0;

  function say(headline, detail, options = {}) {
    $('headline').textContent = headline;
    $('detail').textContent = detail || '';
    $('again').hidden = !options.again;
    $('state').classList.toggle('over', Boolean(options.over));
    $('state').hidden = false;
  }

  function stop() {
    clearTimeout(timer);
    if (hls) hls.destroy();
    hls = playingFrag = null;
    video.removeAttribute('src');
    video.controls = false;
    growing = false;
    $('live').hidden = $('latency').hidden = $('qualities').hidden = true;
  }

  const playing = () => Boolean(hls || video.getAttribute('src'));

  // showPoster shows the latest picture, until there is one that moves.
  function showPoster() {
    const at = live ? (query ? '&' : '?') + 'at=' + Math.floor(Date.now() / 5000) : '';
    video.poster = folder + 'poster.jpg' + query + at;
  }

  function later() {
    stop();
    timer = setTimeout(ask, retryAfter * (0.75 + Math.random() / 2));
  }

  // onAir finds out whether an encoder sends the stream. The playlist does not tell: it stays
  // as it is for a while, for an encoder that comes back.
  async function onAir() {
    const answer = await fetch(info, {cache: 'no-store'});
    return !answer.ok || (await answer.json()).meta.live === 1;
  }

  // ask finds out whether there is something to play, without counting as a viewer.
  async function ask() {
    let answer;
    let idle = false;
    try {
      answer = await fetch(source, {method: 'HEAD', cache: 'no-store'});
      idle = live && answer.ok && !await onAir();
    } catch {
      say('No connection', 'The server does not answer. This page goes on trying.');
      return later();
    }
    if (answer.ok && !idle) return play();
    if (answer.status === 401 || answer.status === 403) {
      stop();
      return say('This video is not open to everybody', await reason(), {again: true});
    }
    if (!answer.ok && answer.status !== 404) {
      say('It can’t be played at the moment', 'The server answers with ' + answer.status + '. This page goes on trying.');
    } else if (!live) {
      say('The video is being prepared', 'It plays here as soon as it is ready.');
    } else if (idle || over) {
      say('The stream has ended', 'If it goes on air again, it plays here by itself.');
    } else {
      say('Not on air yet', 'It plays here by itself as soon as it starts.');
    }
    later();
  }

  // reason returns why the server does not let this viewer play.
  async function reason() {
    try {
      const answer = await (await fetch(source, {cache: 'no-store'})).json();
      return answer.errors.join('; ');
    } catch {
      return 'You need a link with permission from whoever published it.';
    }
  }

  function play() {
    stop();
    closing = false;
    video.controls = true;
    showPoster();
    if (window.Hls && Hls.isSupported()) {
      playWithHls();
    } else if (video.canPlayType('application/vnd.apple.mpegurl')) {
      video.src = source;
      start();
    } else {
      say('This browser can’t play it', 'It has neither Media Source Extensions nor HLS. Try another browser.');
    }
  }

  function playWithHls() {
    const h = hls = new Hls({enableWorker: false, lowLatencyMode: true, backBufferLength: 30, maxLiveSyncPlaybackRate: 1.1});
    let recovered = 0;
    h.on(Hls.Events.MANIFEST_PARSED, start);
    h.on(Hls.Events.LEVELS_UPDATED, showQualities);
    h.on(Hls.Events.MANIFEST_PARSED, showQualities);
    h.on(Hls.Events.FRAG_CHANGED, (_, {frag}) => {
      playingFrag = frag;
      onFrag(frag);
    });
    h.on(Hls.Events.LEVEL_LOADED, (_, {details}) => {
      growing = details.live;
      closing = live && !growing;
      if (closing && over) later(); // still the playlist of the last session
    });
    h.on(Hls.Events.ERROR, (_, error) => {
      if (!error.fatal || h !== hls) return;
      if (error.type === Hls.ErrorTypes.MEDIA_ERROR && Date.now() - recovered > 5000) {
        recovered = Date.now();
        return h.recoverMediaError();
      }
      stop();
      ask();
    });
    h.loadSource(source);
    h.attachMedia(video);
  }

  // start plays with sound if the browser lets us, otherwise without.
  async function start() {
    moved = Date.now();
    try {
      await video.play();
    } catch (error) {
      if (error.name !== 'NotAllowedError') return;
      video.muted = true;
      $('unmute').hidden = false;
      video.play().catch(() => say('Ready', 'Press play to watch.', {over: true}));
    }
  }

  // checkEnd ends a stalled stream whose encoder is gone.
  async function checkEnd() {
    if (Date.now() - asked < retryAfter) return;
    asked = Date.now();
    const stalled = moved;
    const sent = await onAir().catch(() => true);
    if (!sent && playing() && moved === stalled) end();
  }

  function end() {
    over = true;
    showPoster();
    say('The stream has ended', 'If it goes on air again, it plays here by itself.');
    later();
  }

  function showQualities() {
    const select = $('quality');
    select.replaceChildren(new Option('Auto', '-1'));
    const levels = hls.levels.map((level, i) => ({i, height: level.height, bitrate: level.bitrate}));
    for (const level of levels.sort((a, b) => b.height - a.height || b.bitrate - a.bitrate)) {
      const rate = (level.bitrate / 1e6).toFixed(1) + ' Mb/s';
      select.add(new Option(level.height ? level.height + 'p · ' + rate : rate, level.i));
    }
    select.value = hls.autoLevelEnabled ? -1 : hls.currentLevel;
    $('qualities').hidden = levels.length < 2;
  }

  $('quality').addEventListener('change', (event) => { hls.nextLevel = Number(event.target.value); });
  $('again').addEventListener('click', () => { say('Loading …'); ask(); });
  $('unmute').addEventListener('click', () => { video.muted = false; $('unmute').hidden = true; });
  video.addEventListener('volumechange', () => { if (!video.muted) $('unmute').hidden = true; });
  video.addEventListener('ended', () => { if (live) end(); });
  video.addEventListener('error', () => {
    if (hls || !video.getAttribute('src')) return; // hls.js looks after its own
    stop();
    ask();
  });

  // Only a picture that moves proves that all is well.
  setInterval(() => {
    if (!playing()) return;
    const step = video.currentTime - at;
    const still = Date.now() - moved;
    at = video.currentTime;
    if (step > 0 && step < 2 && !video.seeking && !video.paused) {
      moved = Date.now();
      over = false;
      $('state').hidden = true;
    } else if (video.paused || video.ended) {
      moved = Date.now();
      if (video.readyState >= 2 && !over) $('state').hidden = true; // somebody paused it
    } else if (still > endedAfter) {
      // Audio and video seldom end together, and players wait for the shorter one.
      if (closing) return end();
      if (live) checkEnd();
      if (still > stalledAfter) {
        say('Waiting for the picture', live ? 'The encoder or the line is away for a moment; it goes on by itself.' : 'The line is slow; it goes on by itself.', {over: true});
      }
    }
    $('live').hidden = !growing || still > stalledAfter;
    const latency = hls && hls.latency;
    $('latency').hidden = !live || !latency || $('live').hidden;
    if (latency) $('latency').textContent = latency.toFixed(1) + ' s behind';
  }, 250);

  // clipPanel lets the viewer cut a clip. Times are those of the picture that is shown: of the wall
  // clock for a stream, from the start for a video, in milliseconds.
  function clipPanel() {
    const marks = {in: null, out: null};
    let shortest = 0; // measured time between two pictures, in seconds
    let picture = null; // time of the picture that is shown, if the browser tells
    let last = null;
    let busy = false;

    function watchFrames(_, {mediaTime, presentedFrames}) {
      const passed = last && presentedFrames - last.presentedFrames;
      const step = passed > 0 && passed < 5 && (mediaTime - last.mediaTime) / passed;
      if (step > 0.002 && step < 0.2 && (!shortest || step < shortest)) shortest = step;
      picture = mediaTime;
      last = {mediaTime, presentedFrames};
      video.requestVideoFrameCallback(watchFrames);
    }
    if (video.requestVideoFrameCallback) video.requestVideoFrameCallback(watchFrames);

    // frame returns the duration of a picture in seconds: as the playlist says, because a browser that is
    // busy leaves out pictures.
    function frame() {
      const level = hls && hls.levels && hls.levels[Math.max(hls.currentLevel, 0)];
      const rate = level && Number(level.attrs['FRAME-RATE']);
      return rate > 0 ? 1 / rate : shortest || 1 / 30;
    }

    // shownAt returns the time of the picture that is shown, on the timeline of the player. A step
    // leads to the middle of a picture.
    function shownAt() {
      const at = video.currentTime;
      // Chromium does not always tell of the picture after a step back: the last one it told of is later then.
      if (video.seeking || video.paused && picture > at) return at - frame() / 2;
      return picture !== null && Math.abs(picture - at) < 0.25 ? picture : at;
    }

    // toClip turns a time of the player into one of clips; null = it is not known yet.
    function toClip(time) {
      if (!live) return time * 1000;
      const ahead = (time - video.currentTime) * 1000;
      if (hls) return hls.playingDate ? hls.playingDate.getTime() + ahead : null;
      const start = video.getStartDate ? video.getStartDate().getTime() : NaN;
      return Number.isNaN(start) ? null : start + time * 1000;
    }

    function write(time) {
      if (time === null) return 'not marked';
      if (live) {
        const date = new Date(time);
        return date.toLocaleTimeString() + '.' + String(date.getMilliseconds()).padStart(3, '0');
      }
      return Math.floor(time / 60000) + ':' + (time % 60000 / 1000).toFixed(3).padStart(6, '0');
    }

    const tell = (text) => { $('clipState').textContent = text; };

    function show() {
      $('inAt').textContent = write(marks.in);
      $('outAt').textContent = write(marks.out);
      const both = marks.in !== null && marks.out !== null;
      $('make').disabled = busy || !both || marks.out <= marks.in;
      if (busy || !both) return;
      if (marks.out <= marks.in) tell('The clip must end after it begins.');
      else tell('The clip has ' + ((marks.out - marks.in) / 1000).toFixed(3) + ' s.');
    }

    // mark sets a mark. The picture that is shown is the first of the clip, or the last.
    function mark(name) {
      const time = playing() ? toClip(shownAt() + (name === 'out' ? frame() / 2 : 0)) : null;
      if (time === null) return tell('There is no picture to mark yet.');
      $('clipDone').hidden = true;
      marks[name] = Math.max(0, time);
      show();
    }

    function step(frames) {
      if (!playing()) return;
      video.pause();
      video.currentTime = Math.max(0, shownAt() + (frames + 0.5) * frame());
    }

    // token returns what proves that the viewer may play, if that is needed.
    function token() {
      const level = hls && hls.levels && hls.levels[0];
      const found = level && /\/t\/([^/]+)\//.exec(new URL(level.uri, location.href).pathname);
      return found ? found[1] : undefined;
    }

    async function make() {
      busy = true;
      $('clipDone').hidden = true;
      show();
      tell('Asking for the clip …');
      try {
        const answer = await fetch('../api/clip' + query, {
          method: 'POST',
          headers: {'Content-Type': 'application/json'},
          body: JSON.stringify({playbackId: id, startTime: marks.in, endTime: marks.out, name: $('clipName').value || undefined, playbackToken: token()}),
        });
        const body = await answer.json();
        if (answer.ok) await follow(body.asset);
        else tell('No clip was made: ' + body.errors.join('; ') + '.');
      } catch {
        tell('No clip was made: the server does not answer. Try again.');
      }
      busy = false;
      $('make').disabled = false;
    }

    // follow waits until the clip can be played.
    async function follow(clip) {
      const began = Date.now();
      for (let lost = 0; lost < 10;) {
        tell('The clip is being cut: ' + Math.round((Date.now() - began) / 1000) + ' s.');
        await new Promise((done) => { setTimeout(done, 1000); });
        try {
          const answer = await fetch('../api/playback/' + encodeURIComponent(clip.playbackId), {cache: 'no-store'});
          lost = 0;
          if (answer.ok) return ready(clip);
          const failed = (await answer.json()).errors[1];
          if (answer.status === 422 && !failed) continue; // not yet
          return tell('There is no clip: ' + (failed || 'it was deleted') + '.');
        } catch {
          lost++;
        }
      }
      tell('The server does not answer. The clip may be there later.');
    }

    function ready(clip) {
      const gated = clip.playbackPolicy && clip.playbackPolicy.type !== 'public';
      tell('The clip is ready.' + (gated ? ' Like this video, it is not open to everybody.' : ''));
      $('clipLink').href = encodeURIComponent(clip.playbackId);
      $('clipLink').textContent = 'Watch ' + clip.name;
      $('clipDone').hidden = false;
    }

    $('in').addEventListener('click', () => mark('in'));
    $('out').addEventListener('click', () => mark('out'));
    $('back').addEventListener('click', () => step(-1));
    $('next').addEventListener('click', () => step(1));
    $('make').addEventListener('click', make);
    document.addEventListener('keydown', (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches('input, select')) return;
      const act = {i: () => mark('in'), o: () => mark('out'), ',': () => step(-1), '.': () => step(1)}[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
  }

  // signedPanel verifies the segments that are played, from when the viewer asks for it.
  function signedPanel() {
    const done = {'c2pa.created': 'recorded', 'c2pa.opened': 'made from another file', 'c2pa.transcoded': 'encoded', 'c2pa.trimmed': 'cut', 'c2pa.repackaged': 'copied into other files'};
    const files = document.querySelector('link[rel=stylesheet]').href;
    let worker = null;
    let trust = ''; // the root of the server's own certificate
    let number = 0; // of the last question
    let checked = 0;
    let bad = false; // stays: what was shown does not become good later

    function verdict(text, problem) {
      bad = bad || Boolean(problem);
      if (bad && !problem) return;
      $('verdict').textContent = text;
      $('signed').textContent = bad ? 'Not valid' : 'Signed';
      $('signed').classList.toggle('bad', bad);
    }

    async function load(address, form) {
      const answer = await fetch(address, {cache: 'force-cache'}); // the bytes that the player has
      if (!answer.ok) throw new Error('the server answers with ' + answer.status);
      return answer[form]();
    }

    // inPlaylist finds what is played where the browser plays the playlist by itself.
    async function inPlaylist(address) {
      const lines = (await load(address, 'text')).split('\n').map((line) => line.trim());
      const uri = (line) => new URL(line, address).href;
      if (!lines.some((line) => line.startsWith('#EXTINF'))) return inPlaylist(uri(lines.find((line) => line && !line.startsWith('#'))));
      let start;
      let segment;
      let end = 0;
      for (const line of lines) {
        const map = /^#EXT-X-MAP:.*URI="([^"]*)"/.exec(line);
        if (map && !(segment && end > video.currentTime)) start = uri(map[1]);
        if (line.startsWith('#EXTINF:')) end += parseFloat(line.slice(8));
        if (!line || line.startsWith('#')) continue;
        segment = uri(line);
        if (end > video.currentTime) break;
      }
      return {start, segment};
    }

    async function check(frag) {
      const asked = ++number;
      try {
        const {start, segment} = frag && frag.initSegment ? {start: frag.initSegment.url, segment: frag.url} : await inPlaylist(source);
        const bytes = await Promise.all([load(start, 'arrayBuffer'), load(segment, 'arrayBuffer')]);
        worker.postMessage({number: asked, start: bytes[0], segment: bytes[1], trust}, bytes);
      } catch (error) {
        if (!bad) $('verdict').textContent = 'It could not be checked: ' + error.message + '.';
      }
    }

    function answered({data: {report, error}}) {
      if (error) return verdict('Not valid: ' + error + '.', true);
      const manifest = report.manifests[report.active_manifest] || {};
      const failed = ((report.validation_results || {}).activeManifest || {}).failure || [];
      const known = report.validation_state === 'Trusted';
      if (!known && report.validation_state !== 'Valid') {
        const why = failed.filter((f) => f.code !== 'signingCredential.untrusted').map((f) => f.explanation || f.code);
        verdict('Not valid: ' + (why.join('; ') || report.validation_state) + '.', true);
      } else {
        checked++;
        verdict('Valid: what you see is as it was signed' + (known ? ' by this server.' : ', by a signer whom this server does not know.') +
          ' Checked: ' + checked + (checked === 1 ? ' segment.' : ' segments.'));
      }
      const actions = (manifest.assertions || []).filter((a) => a.label.startsWith('c2pa.actions')).flatMap((a) => a.data.actions);
      const signer = manifest.signature_info || {};
      const generator = (manifest.claim_generator_info || [])[0] || {};
      $('who').textContent = [signer.common_name, signer.issuer].filter(Boolean).join(', ');
      $('what').textContent = [manifest.title, actions.map((a) => done[a.action] || a.action).join(', '), 'with ' + [generator.name, generator.version].filter(Boolean).join(' ')].filter(Boolean).join(' · ');
      const when = signer.time || (actions.find((a) => a.when) || {}).when;
      $('when').textContent = when ? new Date(when).toLocaleString() + (signer.time ? '' : ', as the signer says') : 'not said';
      $('from').textContent = (manifest.ingredients || []).map((i) => (i.title || 'a file') + (i.active_manifest ? ', which is signed itself' : ', which is not signed')).join('; ') || 'a live stream';
      $('says').hidden = false;
    }

    $('signed').addEventListener('click', async () => {
      const open = $('provenance').hidden;
      $('provenance').hidden = !open;
      $('signed').setAttribute('aria-expanded', String(open));
      if (worker) return;
      $('verdict').textContent = 'Checking …';
      worker = new Worker(new URL('verify.js', files), {type: 'module'});
      worker.onmessage = answered;
      worker.onerror = () => { $('verdict').textContent = 'It could not be checked: this browser can’t run the validator.'; };
      try {
        trust = await load('../api/c2pa/root.pem', 'text');
      } catch {
        // Then the signer is not known.
      }
      check(playingFrag);
    });
    onFrag = (frag) => { if (worker && number > 0) check(frag); };
  }

  if ($('signed')) signedPanel();
  if ($('clip')) clipPanel();
  showPoster();
  ask();
})();

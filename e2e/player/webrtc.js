// A publisher (WHIP) and a viewer (WHEP) with nothing but what browsers have.

const peers = {};

// exchange posts the offer of a connection and takes the answer. Candidates that are found
// after that are sent behind, as the RFC of WHIP says.
async function exchange(name, pc, url) {
  const peer = (peers[name] = { pc, patched: [], states: [] });
  pc.onconnectionstatechange = () => peer.states.push(pc.connectionState);
  const waiting = [];
  const patch = async (candidate) => {
    const fragment = `a=ice-ufrag:${candidate.usernameFragment}\r\nm=audio 9 UDP/TLS/RTP/SAVPF 0\r\na=mid:${candidate.sdpMid}\r\na=${candidate.candidate}\r\n`;
    const answer = await fetch(peer.location, {
      method: "PATCH",
      body: fragment,
      headers: { "Content-Type": "application/trickle-ice-sdpfrag" },
    });
    peer.patched.push(answer.status);
  };
  pc.onicecandidate = ({ candidate }) => {
    if (candidate && candidate.candidate) {
      peer.location ? patch(candidate) : waiting.push(candidate);
    }
  };
  await pc.setLocalDescription(await pc.createOffer());
  peer.head = (await fetch(url, { method: "HEAD" })).status;
  const answer = await fetch(url, {
    method: "POST",
    body: pc.localDescription.sdp,
    headers: { "Content-Type": "application/sdp" },
  });
  const text = await answer.text();
  if (answer.status !== 201) {
    throw new Error(`${answer.status} ${text}`);
  }
  peer.location = new URL(answer.headers.get("Location"), url).href;
  await pc.setRemoteDescription({ type: "answer", sdp: text });
  waiting.splice(0).forEach(patch);
}

// publish sends the camera and the microphone of the browser, in H.264.
async function publish(url) {
  const stream = await navigator.mediaDevices.getUserMedia({
    video: { width: 320, height: 240, frameRate: 20 },
    audio: true,
  });
  const pc = new RTCPeerConnection();
  for (const track of stream.getTracks()) {
    const transceiver = pc.addTransceiver(track, { direction: "sendonly", streams: [stream] });
    if (track.kind === "video") {
      const codecs = RTCRtpSender.getCapabilities("video").codecs;
      transceiver.setCodecPreferences(codecs.filter((c) => c.mimeType === "video/H264"));
    }
  }
  await exchange("publisher", pc, url);
}

// view watches a stream.
async function view(url) {
  const pc = new RTCPeerConnection();
  pc.addTransceiver("video", { direction: "recvonly" });
  pc.addTransceiver("audio", { direction: "recvonly" });
  const video = document.createElement("video");
  video.autoplay = true;
  video.muted = false;
  document.body.append(video);
  pc.ontrack = ({ streams }) => {
    video.srcObject = streams[0];
  };
  await exchange("viewer", pc, url);
  peers.viewer.video = video;
}

// exchanged tells how a connection is doing.
async function exchanged(name) {
  const { pc, head, patched, states, video } = peers[name];
  const told = { State: pc.connectionState, Head: head, Patched: patched, States: states, Frames: 0, Keys: 0, SoundPackets: 0, SoundLevel: 0 };
  for (const report of (await pc.getStats()).values()) {
    if (report.type === "outbound-rtp" || report.type === "inbound-rtp") {
      if (report.kind === "video") {
        told.Frames = report.framesDecoded ?? report.framesSent ?? 0;
        told.Keys = report.keyFramesDecoded ?? report.keyFramesEncoded ?? 0;
        told.Implementation = report.decoderImplementation ?? report.encoderImplementation ?? "";
      } else {
        told.SoundPackets = report.packetsReceived ?? report.packetsSent ?? 0;
        told.SoundLevel = Math.max(told.SoundLevel, report.totalAudioEnergy ?? 0);
      }
    }
  }
  if (video) {
    told.Width = video.videoWidth;
    told.At = video.currentTime;
  }
  return told;
}

// leave ends a connection by its address.
async function leave(name) {
  return (await fetch(peers[name].location, { method: "DELETE" })).status;
}

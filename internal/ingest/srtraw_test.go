package ingest

import (
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	srt "github.com/datarhei/gosrt"
	"github.com/datarhei/gosrt/circular"
	srtpacket "github.com/datarhei/gosrt/packet"

	"weir/internal/cmaf"
	"weir/internal/mpegts"
)

// rawCaller is an encoder that sends what it is told, right or wrong, and never repeats
// anything.
type rawCaller struct {
	t      *testing.T
	conn   net.Conn
	socket uint32 // of the server
	number uint32 // of the next packet
	began  time.Time
}

// callRaw does the handshake.
func callRaw(t *testing.T, address string) *rawCaller {
	t.Helper()
	c, answer := askRaw(t, address, 1500)
	if answer.HandshakeType != srtpacket.HSTYPE_CONCLUSION {
		t.Fatalf("refused: %v", answer.HandshakeType)
	}
	return c
}

// askRaw does the handshake and returns how it ended; packets may be so long.
func askRaw(t *testing.T, address string, size uint32) (*rawCaller, srtpacket.CIFHandshake) {
	t.Helper()
	conn, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &rawCaller{t: t, conn: conn, began: time.Now()}
	hello := &srtpacket.CIFHandshake{
		IsRequest: true, Version: 4, ExtensionField: 2, InitialPacketSequenceNumber: circular.New(0, srtpacket.MAX_SEQUENCENUMBER),
		MaxTransmissionUnitSize: size, MaxFlowWindowSize: 8192, HandshakeType: srtpacket.HSTYPE_INDUCTION, SRTSocketId: rand.Uint32() | 1,
	}
	answer := c.handshake(hello)
	hello.Version, hello.HandshakeType, hello.SynCookie = 5, srtpacket.HSTYPE_CONCLUSION, answer.SynCookie
	hello.HasSID, hello.StreamId = true, goodKey
	hello.HasHS, hello.SRTHS = true, &srtpacket.CIFHandshakeExtension{SRTVersion: 0x010401, SRTFlags: srtpacket.CIFHandshakeExtensionFlags{
		TSBPDSND: true, TSBPDRCV: true, CRYPT: true, TLPKTDROP: true, PERIODICNAK: true, REXMITFLG: true,
	}}
	answer = c.handshake(hello)
	c.socket = answer.SRTSocketId
	return c, answer
}

func (c *rawCaller) handshake(hello *srtpacket.CIFHandshake) (answer srtpacket.CIFHandshake) {
	c.t.Helper()
	p := srtpacket.NewPacket(nil)
	p.Header().IsControlPacket, p.Header().ControlType = true, srtpacket.CTRLTYPE_HANDSHAKE
	if err := p.MarshalCIF(hello); err != nil {
		c.t.Fatal(err)
	}
	buffer := make([]byte, 1500)
	for { // the server may not listen yet, or be slow
		c.send(p)
		if err := c.conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			c.t.Fatal(err)
		}
		n, err := c.conn.Read(buffer)
		if os.IsTimeout(err) && time.Since(c.began) < 10*time.Second {
			continue
		}
		if err != nil {
			c.t.Fatal(err)
		}
		said, err := srtpacket.NewPacketFromData(nil, buffer[:n])
		if err != nil {
			c.t.Fatal(err)
		}
		if err := said.UnmarshalCIF(&answer); err != nil {
			c.t.Fatal(err)
		}
		if answer.HandshakeType == hello.HandshakeType || answer.HandshakeType.IsRejection() {
			return answer
		}
	}
}

func (c *rawCaller) send(p srtpacket.Packet) {
	p.Header().DestinationSocketId = c.socket
	var b strings.Builder
	if err := p.Marshal(&b); err != nil {
		c.t.Fatal(err)
	}
	_, _ = c.conn.Write([]byte(b.String())) // nobody may listen any more
}

// data sends media, whose time is so far ahead.
func (c *rawCaller) data(payload []byte, ahead time.Duration) {
	p := srtpacket.NewPacket(nil)
	p.Header().PacketSequenceNumber = circular.New(c.number, srtpacket.MAX_SEQUENCENUMBER)
	p.Header().Timestamp = uint32((time.Since(c.began) + ahead).Microseconds())
	p.SetData(payload)
	c.send(p)
	c.number++
}

// Callers that would have packets of no size, or of a huge one, are refused.
func TestSRTPacketSize(t *testing.T) {
	hub := newTestHub()
	address, _ := startSRT(t, SRT{}, hub)
	for _, size := range []uint32{0, 43, 60, 1501, 1<<32 - 1} {
		if _, answer := askRaw(t, address, size); answer.HandshakeType != srtpacket.HandshakeType(srt.REJ_ROGUE) {
			t.Errorf("packets of %d bytes: %v, want that it is refused", size, answer.HandshakeType)
		}
	}
	callRaw(t, address)
	hub.wait(t, "the connection of one who has a size", func() bool { return len(hub.publishers) == 1 })
}

// Packets that never come cost the frames that they were of, and nothing else.
func TestSRTLoss(t *testing.T) {
	t.Parallel()
	hub := newTestHub()
	address, log := startSRT(t, SRT{}, hub)
	var lost int
	pieces := slices.Collect(slices.Chunk(tsClip(t, "flv", "-c copy"), 7*mpegts.PacketSize))
	c := callRaw(t, address)
	for i, piece := range pieces {
		if i%16 == 15 {
			c.number++
			lost++
			continue
		}
		c.data(piece, 0)
	}
	goodbye := srtpacket.NewPacket(nil)
	goodbye.Header().IsControlPacket, goodbye.Header().ControlType = true, srtpacket.CTRLTYPE_SHUTDOWN
	c.send(goodbye)
	p := hub.only(t)
	if p.closed != "clean" || len(p.tracks) != 1 {
		t.Errorf("ended %s with %d sets of tracks, want clean, 1", p.closed, len(p.tracks))
	}
	if n := len(p.of(cmaf.Video)); n < 50-3*lost || n >= 50 || lost == 0 {
		t.Errorf("%d of 50 pictures came, where %d packets were lost", n, lost)
	}
	if !strings.Contains(log.String(), "frames were left out") {
		t.Errorf("the log does not tell of it:\n%s", log)
	}
}

// A caller that was let in may send anything.
func TestSRTNonsense(t *testing.T) {
	t.Parallel()
	hub := newTestHub()
	address, _ := startSRT(t, SRT{}, hub)
	c := callRaw(t, address)
	chance := rand.New(rand.NewPCG(5, 6))
	kinds := []srtpacket.CtrlType{
		srtpacket.CTRLTYPE_KEEPALIVE, srtpacket.CTRLTYPE_ACK, srtpacket.CTRLTYPE_NAK, srtpacket.CTRLTYPE_ACKACK, srtpacket.CTRLTYPE_USER, srtpacket.CTRLTYPE_WARN,
		srtpacket.CTRLTYPE_HANDSHAKE,
	}
	for i := range 5000 { // but for those with which it would end the connection
		p := srtpacket.NewPacket(nil)
		payload := make([]byte, chance.IntN(100))
		for i := range payload {
			payload[i] = byte(chance.Uint32())
		}
		p.SetData(payload)
		h := p.Header()
		h.Timestamp = chance.Uint32()
		if h.IsControlPacket = i%4 > 0; h.IsControlPacket {
			h.ControlType, h.SubType, h.TypeSpecific = kinds[chance.IntN(len(kinds))], srtpacket.CtrlSubType(2+chance.IntN(7)), chance.Uint32()
		} else {
			h.PacketSequenceNumber = circular.New(chance.Uint32()>>1, srtpacket.MAX_SEQUENCENUMBER)
			h.KeyBaseEncryptionFlag = srtpacket.PacketEncryption(chance.IntN(4))
		}
		c.send(p)
	}
	if p := hub.only(t); p.closed != "lost" || len(p.frames) > 0 {
		t.Errorf("ended %s after %d frames, want lost, none", p.closed, len(p.frames))
	}
}

// What is sent to be delivered much later does not pile up.
func TestSRTAhead(t *testing.T) {
	t.Parallel()
	hub := newTestHub()
	const limit = 1000
	address, log := startSRT(t, SRT{MaxAhead: limit}, hub)
	c := callRaw(t, address)
	hub.wait(t, "the connection", func() bool { return len(hub.publishers) > 0 })
	payload, ended := make([]byte, 188), false
	for !ended && c.number < 1000*limit {
		c.data(payload, time.Hour)
		if c.number%100 == 0 {
			hub.mu.Lock()
			ended = hub.publishers[0].closed != ""
			hub.mu.Unlock()
		}
	}
	if p := hub.only(t); !ended || p.closed != "lost" || !strings.Contains(log.String(), "set a lower latency") {
		t.Errorf("ended %s, and the log does not tell why:\n%s", p.closed, log)
	}
}

package srt

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	gosrt "github.com/datarhei/gosrt"
	"github.com/datarhei/gosrt/circular"
	"github.com/datarhei/gosrt/packet"

	"weir/internal/wait"
	"weir/internal/weir"
)

// rawCaller is an encoder that sends valid and invalid packets, and never retransmits.
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
	if answer.HandshakeType != packet.HSTYPE_CONCLUSION {
		t.Fatalf("refused: %v", answer.HandshakeType)
	}
	return c
}

// askRaw does the handshake and returns how it ended; packets may be so long.
func askRaw(t *testing.T, address string, size uint32) (*rawCaller, packet.CIFHandshake) {
	t.Helper()
	conn, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &rawCaller{t: t, conn: conn, began: time.Now()}
	hello := &packet.CIFHandshake{
		IsRequest: true, Version: 4, ExtensionField: 2, InitialPacketSequenceNumber: circular.New(0, packet.MAX_SEQUENCENUMBER),
		MaxTransmissionUnitSize: size, MaxFlowWindowSize: 8192, HandshakeType: packet.HSTYPE_INDUCTION, SRTSocketId: rand.Uint32() | 1,
	}
	answer := c.handshake(hello)
	hello.Version, hello.HandshakeType, hello.SynCookie = 5, packet.HSTYPE_CONCLUSION, answer.SynCookie
	hello.HasSID, hello.StreamId = true, goodKey
	hello.HasHS, hello.SRTHS = true, &packet.CIFHandshakeExtension{SRTVersion: 0x010401, SRTFlags: packet.CIFHandshakeExtensionFlags{
		TSBPDSND: true, TSBPDRCV: true, CRYPT: true, TLPKTDROP: true, PERIODICNAK: true, REXMITFLG: true,
	}}
	answer = c.handshake(hello)
	c.socket = answer.SRTSocketId
	return c, answer
}

func (c *rawCaller) handshake(hello *packet.CIFHandshake) (answer packet.CIFHandshake) {
	c.t.Helper()
	p := packet.NewPacket(nil)
	p.Header().IsControlPacket, p.Header().ControlType = true, packet.CTRLTYPE_HANDSHAKE
	if err := p.MarshalCIF(hello); err != nil {
		c.t.Fatal(err)
	}
	buffer := make([]byte, 1500)
	wait.NoError(c.t, func() error { // the server may not listen yet, or be slow
		c.send(p)
		if err := c.conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		n, err := c.conn.Read(buffer)
		if err != nil {
			return err
		}
		said, err := packet.NewPacketFromData(nil, buffer[:n])
		if err != nil {
			c.t.Fatal(err)
		}
		if err := said.UnmarshalCIF(&answer); err != nil {
			c.t.Fatal(err)
		}
		if answer.HandshakeType != hello.HandshakeType && !answer.HandshakeType.IsRejection() {
			return fmt.Errorf("the answer is of type %v, want %v", answer.HandshakeType, hello.HandshakeType)
		}
		return nil
	})
	return answer
}

func (c *rawCaller) send(p packet.Packet) {
	p.Header().DestinationSocketId = c.socket
	var b strings.Builder
	if err := p.Marshal(&b); err != nil {
		c.t.Fatal(err)
	}
	_, _ = c.conn.Write([]byte(b.String())) // nobody may listen any more
}

// data sends media, whose time is so far ahead.
func (c *rawCaller) data(payload []byte, ahead time.Duration) {
	p := packet.NewPacket(nil)
	p.Header().PacketSequenceNumber = circular.New(c.number, packet.MAX_SEQUENCENUMBER)
	p.Header().Timestamp = uint32((time.Since(c.began) + ahead).Microseconds())
	p.SetData(payload)
	c.send(p)
	c.number++
}

// shutdown says that the encoder ends the connection.
func (c *rawCaller) shutdown() {
	p := packet.NewPacket(nil)
	p.Header().IsControlPacket, p.Header().ControlType = true, packet.CTRLTYPE_SHUTDOWN
	c.send(p)
}

// Callers that would have packets of no size, or of a huge one, are refused.
func TestPacketSize(t *testing.T) {
	address, conns := startListener(t, "", maxAhead)
	for _, size := range []uint32{0, 43, 60, 1501, 1<<32 - 1} {
		if _, answer := askRaw(t, address, size); answer.HandshakeType != packet.HandshakeType(gosrt.REJ_ROGUE) {
			t.Errorf("packets of %d bytes: %v, want that it is refused", size, answer.HandshakeType)
		}
	}
	callRaw(t, address)
	<-conns
}

// Lost packets are reported, and the others are read.
func TestLoss(t *testing.T) {
	t.Parallel()
	address, conns := startListener(t, "", maxAhead)
	c := callRaw(t, address)
	conn := <-conns
	const count = 200
	lost := func(i int) bool { return i%16 == 15 }
	for i := range count {
		if lost(i) {
			c.number++
			continue
		}
		c.data([]byte{byte(i)}, 0)
	}
	c.shutdown()
	for i := range count {
		if lost(i) {
			continue
		}
		b := make([]byte, 2)
		if n, err := conn.Read(b); err != nil || n != 1 || b[0] != byte(i) || conn.Lost() != (i > 0 && lost(i-1)) {
			t.Fatalf("instead of packet %d: %x, %v, lost before it: %v", i, b[:n], err, conn.Lost())
		}
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || !conn.Ended() {
		t.Errorf("at the end: %v, ended by the caller: %v", err, conn.Ended())
	}
}

// A caller that was let in may send anything.
func TestNonsense(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	address, conns := startListener(t, "", maxAhead)
	c := callRaw(t, address)
	chance := rand.New(rand.NewPCG(5, 6))
	kinds := []packet.CtrlType{
		packet.CTRLTYPE_KEEPALIVE, packet.CTRLTYPE_ACK, packet.CTRLTYPE_NAK, packet.CTRLTYPE_ACKACK, packet.CTRLTYPE_USER, packet.CTRLTYPE_WARN,
		packet.CTRLTYPE_HANDSHAKE,
	}
	for i := range 5000 { // but for those with which it would end the connection
		p := packet.NewPacket(nil)
		payload := make([]byte, chance.IntN(100))
		for i := range payload {
			payload[i] = byte(chance.Uint32())
		}
		p.SetData(payload)
		h := p.Header()
		h.Timestamp = chance.Uint32()
		if h.IsControlPacket = i%4 > 0; h.IsControlPacket {
			h.ControlType, h.SubType, h.TypeSpecific = kinds[chance.IntN(len(kinds))], packet.CtrlSubType(2+chance.IntN(7)), chance.Uint32()
		} else {
			h.PacketSequenceNumber = circular.New(chance.Uint32()>>1, packet.MAX_SEQUENCENUMBER)
			h.KeyBaseEncryptionFlag = packet.PacketEncryption(chance.IntN(4))
		}
		c.send(p)
	}
	conn := <-conns
	if _, err := io.Copy(io.Discard, conn); err != nil || conn.Ended() {
		t.Errorf("error %v, ended by the caller: %v; want a connection that was lost", err, conn.Ended())
	}
}

// The number of packets with late delivery times is limited.
func TestAhead(t *testing.T) {
	t.Parallel()
	const limit = 1000
	address, conns := startListener(t, "", limit)
	c := callRaw(t, address)
	ended := make(chan error, 1)
	conn := <-conns
	go func() {
		_, err := io.Copy(io.Discard, conn)
		ended <- err
	}()
	payload := make([]byte, 188)
	for c.number < 1000*limit {
		select {
		case err := <-ended:
			if weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), "set a lower latency") {
				t.Errorf("error %v, want that too many packets wait", err)
			}
			return
		default:
			c.data(payload, time.Hour)
		}
	}
	t.Error("the connection did not end")
}

// A caller that sends no media keeps its connection with keep-alives.
func TestKeepAlive(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	address, conns := startListener(t, "", maxAhead)
	c := callRaw(t, address)
	conn := <-conns
	for range 2 * idleTimeout / time.Second {
		p := packet.NewPacket(nil)
		p.Header().IsControlPacket, p.Header().ControlType = true, packet.CTRLTYPE_KEEPALIVE
		c.send(p)
		time.Sleep(time.Second)
	}
	c.data([]byte{7}, 0)
	b := make([]byte, 2)
	if n, err := conn.Read(b); n != 1 || err != nil || b[0] != 7 {
		t.Errorf("read %x, %v", b[:n], err)
	}
}

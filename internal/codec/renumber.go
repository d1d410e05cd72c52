package codec

import (
	"errors"
	"fmt"

	"github.com/Eyevinn/mp4ff/hevc"
)

// Renumbering gives the parameter sets of H.265 another id, in the sets and in the frames that refer to
// them. x265 knows only the id 0, unlike x264.
type Renumbering struct {
	id  uint32
	sps map[uint32]*hevc.SPS
	pps map[uint32]*hevc.PPS
}

var errRenumber = errors.New("the parameter sets can't get another id")

// NewRenumbering returns the configuration c with another id of its parameter sets, and what changes the
// samples of the track. The id is at most 15.
func NewRenumbering(c Config, id uint32) (*Renumbering, Config, error) {
	sets, err := ParseHVCC(c.Record)
	if err != nil {
		return nil, c, err
	}
	r := &Renumbering{id: id, sps: map[uint32]*hevc.SPS{}, pps: map[uint32]*hevc.PPS{}}
	var units [3][]byte // VPS, SPS, PPS
	if len(sets.Units) != len(units) || sets.LengthSize != 4 || id > 15 {
		return nil, c, errRenumber
	}
	for i, unit := range sets.Units {
		if units[i], err = r.set(unit); err != nil {
			return nil, c, err
		}
	}
	renumbered, err := H265Config(units[0], units[1], units[2])
	return r, renumbered, err
}

// set returns a parameter set with the new id. Sets come in the order VPS, SPS, PPS.
func (r *Renumbering) set(unit []byte) ([]byte, error) {
	const header, generalProfile = 16, 96 // bits
	in := bitReader{data: unescape(unit)}
	var out bitWriter
	out.copy(&in, header)
	switch H265NAL(unit) {
	case NALVPS:
		in.take(4)
		out.add(r.id, 4)
	case NALSPS:
		sps, err := hevc.ParseSPSNALUnit(unit)
		if err != nil {
			return nil, err
		}
		if sps.MaxSubLayersMinus1 > 0 { // the id would be elsewhere
			return nil, errRenumber
		}
		r.sps[uint32(sps.SpsID)] = sps
		in.take(4)
		out.add(r.id, 4)
		out.copy(&in, 4+generalProfile)
		in.golomb()
		out.golomb(r.id)
	case NALPPS:
		pps, err := hevc.ParsePPSNALUnit(unit, r.sps)
		if err != nil {
			return nil, err
		}
		r.pps[pps.PicParameterSetID] = pps
		in.golomb()
		in.golomb()
		out.golomb(r.id)
		out.golomb(r.id)
	default:
		return nil, errRenumber
	}
	out.copy(&in, 8*len(in.data)-in.at) // with the stop bit; zeros may follow it
	if in.short {
		return nil, errRenumber
	}
	return escape(trimZeros(out.data)), nil
}

// trimZeros removes zeros after the stop bit.
func trimZeros(plain []byte) []byte {
	for len(plain) > 0 && plain[len(plain)-1] == 0 {
		plain = plain[:len(plain)-1]
	}
	return plain
}

// Sample returns a frame that refers to the new id.
func (r *Renumbering) Sample(data []byte) ([]byte, error) {
	out := make([]byte, 0, len(data)+16)
	for unit, err := range Units(data, 4) {
		if err != nil {
			return nil, err
		}
		if kind := H265NAL(unit); kind == NALSlice || kind == NALKeySlice {
			if unit, err = r.slice(unit); err != nil {
				return nil, err
			}
		}
		out = AppendUnit(out, unit)
	}
	return out, nil
}

// slice returns a slice whose header has the new id. The header ends with a bit 1 and zeros up to a whole
// byte; the bytes after it stay as they are.
func (r *Renumbering) slice(unit []byte) ([]byte, error) {
	header, err := hevc.ParseSliceHeader(unit, r.sps, r.pps)
	if err != nil {
		return nil, fmt.Errorf("header of a slice: %w", err)
	}
	if header.NumEntryPointOffsets > 0 { // they count bytes that may change
		return nil, errRenumber
	}
	plain := unescape(unit)
	length := len(unescape(unit[:header.Size]))
	in := bitReader{data: plain[:length]}
	var out bitWriter
	out.copy(&in, 16+1)
	if H265NAL(unit) == NALKeySlice {
		out.copy(&in, 1)
	}
	in.golomb()
	out.golomb(r.id)
	end := 8 * length // of the header without its last bit 1
	for end--; end > in.at && plain[end/8]>>(7-end%8)&1 == 0; {
		end--
	}
	if in.short || end < in.at {
		return nil, errRenumber
	}
	out.copy(&in, end-in.at)
	out.add(1, 1)
	out.align()
	return escape(append(out.data, plain[length:]...)), nil
}

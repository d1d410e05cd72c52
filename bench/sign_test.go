//go:build bench

package bench

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"weir/internal/c2pa"
)

var signRounds = flag.Int("sign-rounds", 3, "interleaved measurements of signed and unsigned outputs, of which the median counts")

// signMaxCPU is the CPU time of a transcode with signed outputs, as a ratio to one without.
const signMaxCPU = 1.03

// TestSign measures what signing adds to a transcode: the same film, all outputs, with and without.
// HLS is MPEG-TS without and CMAF with.
func TestSign(t *testing.T) {
	b := newVODBench(t)
	chain, err := c2pa.NewChain(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, cert := filepath.Join(b.out, "key.pem"), filepath.Join(b.out, "cert.pem")
	for name, data := range map[string][]byte{key: chain.Key, cert: chain.Cert} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	film := b.bunny(t)
	run := func(more ...string) func() measured {
		return func() measured {
			dir := b.folder(t)
			args := []string{b.weir, "transcode", film, dir, "--outputs", "hls,mp4,fmp4", "--profile", "720p:3M", "--profile", "360p:800k"}
			return b.run(t, dir, nil, append(args, more...))
		}
	}
	var plain, signed []measured
	for range *signRounds {
		one := b.quietly(t, "not signed", run())
		two := b.quietly(t, "signed", run("--c2pa", "--c2pa-key", key, "--c2pa-cert", cert))
		b.remove(t, one, two)
		plain, signed = append(plain, one), append(signed, two)
	}
	cpu := func(m measured) float64 { return m.cpu.Seconds() }
	ratio := median(signed, cpu) / median(plain, cpu)
	fmt.Printf("signed outputs cost %.3f of the CPU of a transcode without, at most %.2f\n", ratio, signMaxCPU)
	if ratio > signMaxCPU {
		t.Errorf("signing costs %.1f %% of the CPU of a transcode", 100*(ratio-1))
	}
}

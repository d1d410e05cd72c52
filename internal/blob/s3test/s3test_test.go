package s3test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"weir/internal/wait"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(Runner{M: m})
}

func TestStartGivesEmptyBuckets(t *testing.T) {
	first, second := Start(t), Start(t)
	if first.URL() == second.URL() {
		t.Fatalf("both are %s", first.Name)
	}
	for _, b := range []Bucket{first, second} {
		if left, err := os.ReadDir(b.Dir); err != nil || len(left) > 0 {
			t.Errorf("%s has %v, %v", b.Name, left, err)
		}
	}
	// Without a signature, it answers that it is a store and nothing else.
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(first.Endpoint + "/" + first.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("status = %d, want 403", resp.StatusCode)
	}
}

func TestBucketIsRemovedWithItsTest(t *testing.T) {
	var dir string
	t.Run("inner", func(t *testing.T) {
		dir = Start(t).Dir
		if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is still there", dir)
	}
}

// TestServerEndsWithItsProcess kills a test process that has a server, and checks that the server ends
// and its folder is removed.
func TestServerEndsWithItsProcess(t *testing.T) {
	if os.Getenv("S3TEST_VICTIM") != "" {
		_, _ = os.Stdout.WriteString("at=" + strings.TrimPrefix(Start(t).Endpoint, "http://") + "\n")
		<-t.Context().Done()
		return
	}
	tmp := t.TempDir()
	victim := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	victim.Env = append(os.Environ(), "S3TEST_VICTIM=1", "TMPDIR="+tmp)
	victim.Stderr = os.Stderr
	stdout, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var at string
	for lines := bufio.NewScanner(stdout); at == "" && lines.Scan(); {
		_, at, _ = strings.Cut(lines.Text(), "at=")
	}
	if at == "" {
		t.Fatalf("the victim gave no address: %v", victim.Wait())
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()

	wait.NoError(t, func() error {
		if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", at); err == nil {
			_ = conn.Close()
			return errors.New("the server still listens")
		}
		left, err := filepath.Glob(filepath.Join(tmp, "*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("these are still there: %v", left)
		}
		return err
	})
}

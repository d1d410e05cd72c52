// Package blob is the places where bytes live: the local disk and S3 buckets for
// what weir keeps, the callers' buckets for what it makes, and the callers' URLs
// for what it reads.
//
// A Store holds objects under keys, on disk or in a bucket; both pass the same
// tests (store_test.go). An object is there whole or not at all, and is never
// changed in place: to change it, put it again. A Dest is what the outputs of a task
// are put into: it has fewer methods, and is sealed at the end. A Fetcher reads a source
// once, from the first byte to the last, through every broken connection on the way.
// Send puts a file to a URL.
//
// What a caller named is reached through a guard.Guard and nothing else: give it
// in Options or to the Fetcher. Without a Guard the address is the operator's own.
//
// Every error has a kind of package weir. Upstream and Full are worth another try
// later, and were tried several times already when they come out of here; all the
// others are final. No error has a credential in it.
//
// One file a place: disk.go, s3.go, dest.go, http.go (a web server as a source), gateway.go
// (IPFS and Arweave), hls.go (a playlist as a source). What they share, reading on
// after a failure, is in origin.go.
package blob

import (
	"context"
	"io"
	"iter"
	"log/slog"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"weir/internal/guard"
	"weir/internal/weir"
)

// Info describes an object.
type Info struct {
	Key     string
	Size    int64
	ModTime time.Time
	ETag    string // changes when the object is put again
}

// PutOptions are what a bucket tells those who read an object. The disk has no use
// for them.
type PutOptions struct {
	ContentType  string
	CacheControl string
}

// A Store is a place for objects. A key is a path without a leading slash, like
// asset/1/index; see CheckKey. Where an object a is, there can be none a/b, because
// on disk a key is a file. All methods may be called at the same time.
type Store interface {
	// Put makes an object of size bytes (-1 = until the end) of r, in place of the
	// one that is there. A reader that gives more or less is an error. Readers that
	// can seek are sent again when a connection breaks; others are held in memory,
	// 5 MiB at a time.
	Put(ctx context.Context, key string, r io.Reader, size int64, o PutOptions) error

	// Get returns length bytes (-1 = all) of an object, from offset on; less when
	// the object ends before. The Info is that of the whole object.
	Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, Info, error)

	// Stat returns the Info of an object, or an error of kind weir.NotFound.
	Stat(ctx context.Context, key string) (Info, error)

	// List returns all objects in the folder, at any depth, in no particular order.
	// The folder "" has all objects.
	List(ctx context.Context, folder string) iter.Seq2[Info, error]

	// Delete removes an object. One that isn't there is no error.
	Delete(ctx context.Context, key string) error

	// DeletePrefix removes all objects in the folder, and uploads to it that were
	// not completed. The folder asset/1 does not have asset/10 in it.
	DeletePrefix(ctx context.Context, folder string) error

	// Copy makes the object to out of the object from, without moving bytes where
	// that can be had.
	Copy(ctx context.Context, from, to string) error

	// Upload begins an object that comes in parts. Resume goes on with one that was
	// begun, maybe by another process; its error is of kind weir.NotFound if it was
	// completed or aborted.
	Upload(ctx context.Context, key string, o PutOptions) (Upload, error)
	Resume(ctx context.Context, key, uploadID string) (Upload, error)

	// Path returns the file that an object is or would be in, if the objects are
	// files of this machine. Nobody may write to it.
	Path(key string) (string, bool)

	// Free returns the bytes that are left and that there are. ok is false where
	// nobody can tell.
	Free(ctx context.Context) (free, total int64, ok bool)

	// Close gives up connections and handles.
	Close() error
}

// MinPart is the smallest size of a part that every store takes. All parts of an
// upload must have the same size, but the last, which may be smaller.
const MinPart = 5 << 20

// maxParts is how many parts an object can have.
const maxParts = 10_000

// An Upload is an object that comes in parts, in any order and at the same time. It
// is not there before it is complete.
type Upload interface {
	// ID is what Resume needs.
	ID() string

	// Part stores part n, from 1 on: the size bytes of r, from its start. A part that
	// is stored again replaces the first.
	Part(ctx context.Context, n int, r io.ReadSeeker, size int64) (PartInfo, error)

	// Complete makes the object of the parts, sorted by their number.
	Complete(ctx context.Context, parts []PartInfo) error

	// Abort removes the parts. An upload that is completed or aborted is no error.
	Abort(ctx context.Context) error
}

// PartInfo is what Complete needs to know of a part.
type PartInfo struct {
	Number int    `json:"number"`
	Size   int64  `json:"size"`
	ETag   string `json:"etag,omitempty"`
}

// Options say how a place is reached.
type Options struct {
	Guard *guard.Guard // for what a caller named; nil = the operator's own
	Log   *slog.Logger // nil = nobody is told

	tempo tempo // for tests
}

func (o Options) log() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
}

// Open returns the store at a URL: file:PATH, s3+https://key:secret@host/bucket, with
// s3+http for a server without TLS, or s3://key:secret@region/bucket for Amazon. Key
// and secret are percent-encoded; a path after the bucket is put in front of all keys.
// Nothing is sent to a bucket yet. With a Guard, only buckets can be opened.
func Open(url string, o Options) (Store, error) {
	if path, ok := strings.CutPrefix(url, "file:"); ok {
		if o.Guard != nil {
			return nil, weir.Errorf(weir.Invalid, "a file is not a storage that can be used here; use a bucket, s3+https://key:secret@host/bucket")
		}
		return NewDisk(strings.TrimPrefix(path, "//"))
	}
	where, err := parseBucket(url)
	if err != nil {
		return nil, err
	}
	return newS3(where, o)
}

// maxKey is how long a key may be in a bucket, maxElement how long a name in a folder.
const (
	maxKey     = 1024
	maxElement = 255
)

// hidden is the folder of a disk for what is not an object yet.
const hidden = ".weir"

// CheckKey returns an error that says why something can't be a key. A key is one or
// more names with slashes between them, in UTF-8; the names . and .. and those with
// control characters or a backslash are not for use, and neither is .weir as the
// first.
func CheckKey(key string) error {
	bad := func(why string) error {
		return weir.Errorf(weir.Invalid, "%q can't be a path in a storage: it %s", key, why)
	}
	switch {
	case key == "":
		return weir.Errorf(weir.Invalid, "an empty path can't be a file in a storage")
	case len(key) > maxKey:
		return weir.Errorf(weir.Invalid, "%q… can't be a path in a storage: it is longer than %d bytes", cut(key, 40), maxKey)
	case !utf8.ValidString(key):
		return bad("is not UTF-8")
	case strings.ContainsFunc(key, func(r rune) bool { return unicode.IsControl(r) || r == '\\' || r == utf8.RuneError }):
		return bad("has a control character or a backslash")
	case key[0] == '/' || key[len(key)-1] == '/':
		return bad("begins or ends with a slash")
	}
	first := true
	for name := range strings.SplitSeq(key, "/") {
		switch {
		case name == "" || name == "." || name == "..":
			return bad("has an empty name, . or .. in it")
		case len(name) > maxElement:
			return bad("has a name of more than 255 bytes")
		case first && name == hidden:
			return bad("begins with " + hidden)
		}
		first = false
	}
	return nil
}

// folderKey returns the name of a folder without the slash that people like to put at
// its end. "" stands for everything.
func folderKey(folder string) (string, error) {
	folder = strings.TrimSuffix(folder, "/")
	if folder == "" {
		return "", nil
	}
	return folder, CheckKey(folder)
}

// oneFolder is folderKey where everything would be too much.
func oneFolder(folder string) (string, error) {
	folder, err := folderKey(folder)
	if err == nil && folder == "" {
		err = weir.Errorf(weir.Invalid, "everything in a storage can't be deleted at once")
	}
	return folder, err
}

// cut returns at most n bytes of text, whole characters.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// The part of a disk that is kept free unless the operator says otherwise.
const (
	minFreePercent = 5
	minFreeBytes   = 2 << 30
)

// FreeSpace returns an error of kind weir.Full if a store has less than minFree bytes left
// after need more were written. A minFree of 0 is 5 % of the disk, at least 2 GiB; a
// bucket has always room.
func FreeSpace(ctx context.Context, s Store, minFree, need int64) error {
	free, total, ok := s.Free(ctx)
	if !ok {
		return nil
	}
	return room(free, total, minFree, need)
}

// FreeSpaceAt is FreeSpace for a folder.
func FreeSpaceAt(dir string, minFree, need int64) error {
	free, total, err := statfs(dir)
	if err != nil {
		return diskError(err, "look at "+filepath.Base(dir))
	}
	return room(free, total, minFree, need)
}

func room(free, total, minFree, need int64) error {
	if minFree == 0 {
		minFree = max(total/100*minFreePercent, minFreeBytes)
	}
	if free-need >= minFree {
		return nil
	}
	return weir.Errorf(weir.Full, "there is not enough disk space: %s are free, %s are needed and %s are kept free (--min-free)",
		bytesFor(free), bytesFor(need), bytesFor(minFree))
}

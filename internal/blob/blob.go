// Package blob stores and transfers bytes: weir's own objects on the local disk or in S3 buckets,
// outputs in the callers' buckets, and sources from the callers' URLs.
//
// A Store holds objects under keys, on disk or in a bucket; both pass the same tests
// (store_test.go). An object exists completely or not at all, and is never changed in place: to
// change it, put it again. A Dest receives the outputs of a task: it has fewer methods, and is
// sealed at the end. A Fetcher reads each byte of a source once, and resumes after broken
// connections. Send uploads a file to a URL.
//
// Addresses from callers are only reached through a guard.Guard, in Options or in the Fetcher.
// Without a Guard the address is the operator's own.
//
// Every error has a kind of package weir. Upstream and Full may go away later; the failed request
// was already repeated several times. All others are final. No error contains a credential.
//
// Each place has a file: disk.go, s3.go, dest.go, http.go (a web server as a source), gateway.go
// (IPFS and Arweave), hls.go (a playlist as a source). They share origin.go, which resumes a broken
// transfer.
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
	Key  string
	Size int64
	ETag string // changes when the object is put again
}

// PutOptions are headers that a bucket sends to the readers of an object. The disk ignores them.
type PutOptions struct {
	ContentType  string
	CacheControl string
}

// A Store holds objects. A key is a path without a leading slash, like asset/1/index; see checkKey.
// With an object a there can be no object a/b, because on disk a key is a file. A Store is safe for
// concurrent use.
type Store interface {
	// Put stores size bytes (-1 = all) of r as an object, and replaces an existing one. A reader
	// with more or less bytes is an error. When a connection breaks, readers that can seek are read
	// again; of others, 5 MiB at a time are held in memory.
	Put(ctx context.Context, key string, r io.Reader, size int64, o PutOptions) error

	// Get returns length bytes (-1 = all) of an object from offset on, less when the object ends
	// before. The Info is that of the whole object.
	Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, Info, error)

	// Stat returns the Info of an object, or an error of kind weir.NotFound.
	Stat(ctx context.Context, key string) (Info, error)

	// List returns all objects in the folder, at any depth, in no particular order. The folder ""
	// contains all objects.
	List(ctx context.Context, folder string) iter.Seq2[Info, error]

	// Delete removes an object. One that isn't there is no error.
	Delete(ctx context.Context, key string) error

	// DeletePrefix removes all objects in the folder, and uploads to it that were not completed.
	// The folder asset/1 does not contain asset/10.
	DeletePrefix(ctx context.Context, folder string) error

	// Copy copies an object, if possible without a transfer of its bytes.
	Copy(ctx context.Context, from, to string) error

	// Upload begins a multipart upload. Resume continues one, which another process may have begun;
	// its error is of kind weir.NotFound if it was completed or aborted.
	Upload(ctx context.Context, key string, o PutOptions) (Upload, error)
	Resume(ctx context.Context, key, uploadID string) (Upload, error)

	// Path returns the file of an object, which need not exist, if objects are files on this
	// machine. It must not be written to.
	Path(key string) (string, bool)

	// Free returns the free and the total space in bytes. ok is false where that is not known.
	Free(ctx context.Context) (free, total int64, ok bool)

	// Close closes connections and handles.
	Close() error
}

// MinPart is the smallest size of an upload part that every store accepts. All of an upload but the
// last must have the same size; the last may be smaller.
const MinPart = 5 << 20

// maxParts bounds the number of upload parts of an object.
const maxParts = 10_000

// An Upload is a multipart upload: its parts are stored in any order, also concurrently. The object
// does not exist before Complete.
type Upload interface {
	// ID returns the uploadID for Resume.
	ID() string

	// Part stores size bytes from the start of r as part n, from 1 on, and replaces an existing
	// one.
	Part(ctx context.Context, n int, r io.ReadSeeker, size int64) (PartInfo, error)

	// Complete makes the object from the parts, which are sorted by number.
	Complete(ctx context.Context, parts []PartInfo) error

	// Abort removes the parts. An upload that is completed or aborted is no error.
	Abort(ctx context.Context) error
}

// PartInfo describes a stored upload part.
type PartInfo struct {
	Number int    `json:"number"`
	Size   int64  `json:"size"`
	ETag   string `json:"etag,omitempty"`
}

// Options configure the access to a place.
type Options struct {
	Guard *guard.Guard // for addresses from callers; nil = the operator's own
	Log   *slog.Logger // nil = no log

	// FreeSpace checks for the space before a store on disk writes it; nil = it writes until the disk
	// is full.
	FreeSpace func(need int64) error

	// Observe is called after every request to a bucket, with how long it took until the response
	// began, and whether the bucket failed; nil = nobody wants to know.
	Observe func(took time.Duration, failed bool)

	timing timing // for tests
}

func (o Options) log() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
}

// Open returns the store at a URL: file:PATH, s3+https://key:secret@host/bucket, with s3+http for a
// server without TLS, or s3://key:secret@region/bucket for Amazon. Key and secret are
// percent-encoded; a path after the bucket is the prefix of all keys. Open sends no request. With a
// Guard, only buckets can be opened.
func Open(url string, o Options) (Store, error) {
	if path, ok := strings.CutPrefix(url, "file:"); ok {
		if o.Guard != nil {
			return nil, weir.Errorf(weir.Invalid, "a local folder can't be the storage here; use a bucket, s3+https://key:secret@host/bucket")
		}
		return newDisk(strings.TrimPrefix(path, "//"), 0o700, o.FreeSpace)
	}
	where, err := parseBucket(url)
	if err != nil {
		return nil, err
	}
	return newS3(where, o)
}

// maxKey bounds the length of a key, maxElement that of a name between slashes, in bytes.
const (
	maxKey     = 1024
	maxElement = 255
)

// hidden is the folder of a disk for temporary files and uploads.
const hidden = ".weir"

// checkKey returns an error that explains why something can't be a key. A key is one or more names
// with slashes between them, in UTF-8, without control characters and backslashes. The names . and
// .. are invalid, and so is .weir as the first.
func checkKey(key string) error {
	bad := func(why string) error {
		return weir.Errorf(weir.Invalid, "%q is not a valid path in a storage: it %s", key, why)
	}
	switch {
	case key == "":
		return weir.Errorf(weir.Invalid, "the path of a file in a storage must not be empty")
	case len(key) > maxKey:
		return weir.Errorf(weir.Invalid, "%q… is not a valid path in a storage: it is longer than %d bytes", cut(key, 40), maxKey)
	case !utf8.ValidString(key):
		return bad("is not UTF-8")
	case strings.ContainsFunc(key, func(r rune) bool { return unicode.IsControl(r) || r == '\\' || r == utf8.RuneError }):
		return bad("has a control character or a backslash")
	case key[0] == '/' || key[len(key)-1] == '/':
		return bad("begins or ends with a slash")
	}
	for name := range strings.SplitSeq(key, "/") {
		switch {
		case name == "" || name == "." || name == "..":
			return bad("has an empty name, . or .. in it")
		case len(name) > maxElement:
			return bad("has a name of more than 255 bytes")
		}
	}
	if strings.HasPrefix(key+"/", hidden+"/") {
		return bad("begins with " + hidden)
	}
	return nil
}

// folderKey returns the name of a folder without a slash at the end. "" is the root.
func folderKey(folder string) (string, error) {
	folder = strings.TrimSuffix(folder, "/")
	if folder == "" {
		return "", nil
	}
	return folder, checkKey(folder)
}

// oneFolder is folderKey that refuses the root.
func oneFolder(folder string) (string, error) {
	folder, err := folderKey(folder)
	if err == nil && folder == "" {
		err = weir.Errorf(weir.Invalid, "the root folder of a storage can't be deleted")
	}
	return folder, err
}

// cut returns at most n bytes of text, without a partial character at the end.
func cut(text string, n int) string { return strings.ToValidUTF8(text[:min(n, len(text))], "") }

// The default of the space that is kept free on a disk.
const (
	minFreePercent = 5
	minFreeBytes   = 2 << 30
)

// reserveShare is the part of the space that is kept free which media never takes: a quarter. The
// database needs it, for new rows and for its journal.
const reserveShare = 4

// Room returns the free space of the disk with a folder, and how much should be kept free. A minFree
// of 0 is 5 % of the disk, at least 2 GiB.
func Room(dir string, minFree int64) (free, keep int64, err error) {
	free, total, err := statfs(dir)
	if err != nil {
		return 0, 0, diskError(err, "stat "+filepath.Base(dir))
	}
	return free, keepFree(total, minFree), nil
}

func keepFree(total, minFree int64) int64 {
	if minFree == 0 {
		return max(total/100*minFreePercent, minFreeBytes)
	}
	return minFree
}

// FreeSpace returns an error of kind weir.Full if writing need bytes would leave less than minFree
// bytes of a store free (0 = see Room). A bucket is never full.
func FreeSpace(ctx context.Context, s Store, minFree, need int64) error {
	free, total, ok := s.Free(ctx)
	if !ok {
		return nil
	}
	return checkSpace(free, keepFree(total, minFree), need)
}

// FreeSpaceAt is FreeSpace for a folder.
func FreeSpaceAt(dir string, minFree, need int64) error {
	free, keep, err := Room(dir, minFree)
	if err != nil {
		return err
	}
	return checkSpace(free, keep, need)
}

// ReserveAt is FreeSpaceAt for media that is being made already: it may take all but the reserve of
// the database.
func ReserveAt(dir string, minFree, need int64) error {
	free, keep, err := Room(dir, minFree)
	if err != nil {
		return err
	}
	return checkSpace(free, keep/reserveShare, need)
}

func checkSpace(free, keep, need int64) error {
	if free-need >= keep {
		return nil
	}
	return weir.Errorf(weir.Full, "there is not enough disk space: %s are free, %s are needed and %s are kept free (--min-free)",
		bytesFor(free), bytesFor(need), bytesFor(keep))
}

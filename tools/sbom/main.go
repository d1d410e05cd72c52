// Sbom prints the list of what a binary of weir is made of (SBOM), in the form of CycloneDX.
//
//	sbom BINARY [LOCKFILE[=PACKAGE]]… [STATUS]
//
// BINARY is a Go program, which knows its modules. LOCKFILE is a package-lock.json of npm, whose
// packages count unless they are for development only; with =PACKAGE, that one alone counts. STATUS
// is the status file of dpkg in an image that the binary is in.
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strings"
)

type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Timestamp string    `json:"timestamp,omitempty"`
	Component component `json:"component"`
}

type component struct {
	Type     string    `json:"type"`
	Ref      string    `json:"bom-ref"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Hashes   []hash    `json:"hashes,omitempty"`
	Licenses []license `json:"licenses,omitempty"`
	PURL     string    `json:"purl"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type license struct {
	Expression string `json:"expression"` // of SPDX
}

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: sbom BINARY [LOCKFILE[=PACKAGE]]… [STATUS]"))
	}
	list, err := build(os.Args[1], os.Args[2:])
	if err != nil {
		fail(err)
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(list); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "sbom:", err)
	os.Exit(1)
}

func build(binary string, others []string) (*bom, error) {
	list, err := ofBinary(binary)
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		var parts []component
		file, name, _ := strings.Cut(other, "=")
		if strings.HasSuffix(file, ".json") {
			parts, err = ofLockFile(file, name)
		} else {
			parts, err = ofStatus(file)
		}
		if err == nil && len(parts) == 0 {
			err = fmt.Errorf("nothing was found in %s", other)
		}
		if err != nil {
			return nil, err
		}
		list.Components = append(list.Components, parts...)
	}
	byRef := func(a, b component) int { return cmp.Compare(a.Ref, b.Ref) }
	slices.SortFunc(list.Components, byRef)
	list.Components = slices.CompactFunc(list.Components, func(a, b component) bool { return a.Ref == b.Ref })
	return list, nil
}

// ofBinary returns the list of the Go modules of a binary, and the standard library.
func ofBinary(file string) (*bom, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	program := goModule(&info.Main)
	program.Type = "application"
	program.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum[:])}}
	program.Licenses = []license{{"Apache-2.0"}}
	list := &bom{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{Component: program}}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.time" {
			list.Metadata.Timestamp = setting.Value
		}
	}
	list.Components = append(list.Components, goModule(&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}))
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		list.Components = append(list.Components, goModule(module))
	}
	return list, nil
}

func goModule(m *debug.Module) component { return library(m.Path, m.Version, "golang/"+m.Path, "") }

func library(name, version, where, qualifiers string) component {
	purl := "pkg:" + where + "@" + url.QueryEscape(version) + qualifiers
	return component{Type: "library", Ref: purl, Name: name, Version: version, PURL: purl}
}

// ofLockFile returns the packages of a package-lock.json that are not for development only, or the
// named one alone.
func ofLockFile(file, only string) ([]component, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			Version   string `json:"version"`
			Integrity string `json:"integrity"`
			License   string `json:"license"`
			Dev       bool   `json:"dev"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(content, &lock); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var parts []component
	for folder, p := range lock.Packages {
		_, name, found := cutLast(folder, "node_modules/")
		if !found || only == "" && p.Dev || only != "" && name != only {
			continue
		}
		part := library(name, p.Version, "npm/"+strings.Replace(name, "@", "%40", 1), "")
		if sum, ok := strings.CutPrefix(p.Integrity, "sha512-"); ok {
			raw, err := base64.StdEncoding.DecodeString(sum)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, name, err)
			}
			part.Hashes = []hash{{"SHA-512", hex.EncodeToString(raw)}}
		}
		if p.License != "" {
			part.Licenses = []license{{p.License}}
		}
		parts = append(parts, part)
	}
	return parts, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// ofStatus returns the packages of a status file of dpkg.
func ofStatus(file string) ([]component, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var parts []component
	for entry := range bytes.SplitSeq(content, []byte("\n\n")) {
		fields := map[string]string{}
		for line := range strings.Lines(string(entry)) {
			if name, value, found := strings.Cut(line, ": "); found && line[0] != ' ' {
				fields[name] = strings.TrimSpace(value)
			}
		}
		if fields["Status"] == "install ok installed" {
			parts = append(parts, library(fields["Package"], fields["Version"],
				path.Join("deb/debian", fields["Package"]), "?arch="+fields["Architecture"]))
		}
	}
	return parts, nil
}

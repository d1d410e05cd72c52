package server

import (
	"fmt"
	"runtime/debug"
)

// Version is the version of this binary.
type Version struct {
	Tag    string // release, or "devel"
	Commit string // revision of the source, or "unknown"
	Go     string // of the compiler
}

// ReadVersion returns the version that the go command wrote into the binary.
func ReadVersion() Version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) Version {
	v := Version{Tag: info.Main.Version, Commit: "unknown", Go: info.GoVersion}
	if v.Tag == "" || v.Tag == "(devel)" {
		v.Tag = "devel"
	}
	modified := false
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			v.Commit = setting.Value
		case "vcs.modified":
			modified = setting.Value == "true"
		}
	}
	if modified {
		v.Commit += "-modified"
	}
	return v
}

func (v Version) String() string {
	return fmt.Sprintf("weir %s, commit %s, %s", v.Tag, v.Commit, v.Go)
}

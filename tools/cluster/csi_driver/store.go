package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// record describes a volume or a snapshot. It is written last, so that whatever has a record is
// complete, and a call that is repeated after a time-out finds what the first one did.
type record struct {
	Size    int64     `json:"size"`
	Source  string    `json:"source"` // Kind and id of the origin of the data; empty for none.
	Created time.Time `json:"created"`
}

// store keeps records in a directory, beside the directories with the data.
type store struct{ directory string }

func newStore(directory string) *store {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		log.Fatal(err)
	}
	return &store{directory}
}

// identify returns the id of a name, which is a file name of fixed length whatever the name is.
func identify(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// path returns the directory with the data; an id from outside never leads out of the store.
func (s *store) path(id string) string { return filepath.Join(s.directory, filepath.Base(id)) }

func (s *store) read(id string) (*record, error) {
	content, err := os.ReadFile(s.path(id) + ".json")
	if err != nil {
		return nil, err
	}
	found := &record{}
	return found, json.Unmarshal(content, found)
}

func (s *store) write(id string, written *record) error {
	content, err := json.Marshal(written)
	if err != nil {
		return err
	}
	partial := s.path(id) + ".partial"
	if err := os.WriteFile(partial, content, 0o644); err != nil {
		return err
	}
	return os.Rename(partial, s.path(id)+".json")
}

// remove deletes the record and the data, of which either may be missing.
func (s *store) remove(id string) error {
	if err := os.Remove(s.path(id) + ".json"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := unmount(s.path(id)); err != nil {
		return err
	}
	return os.RemoveAll(s.path(id))
}

// isMounted returns whether something is mounted on a directory.
func isMounted(path string) bool {
	here, err := os.Stat(path)
	if err != nil {
		return false
	}
	above, err := os.Stat(filepath.Dir(path))
	return err == nil && here.Sys().(*syscall.Stat_t).Dev != above.Sys().(*syscall.Stat_t).Dev
}

func unmount(path string) error {
	for isMounted(path) {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			return err
		}
	}
	return nil
}

// copyTree copies directories, files and symbolic links with their modes and owners.
func copyTree(source, target string) error {
	return filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return copyEntry(path, filepath.Join(target, relative), info)
	})
}

func copyEntry(source, target string, info fs.FileInfo) error {
	owner := info.Sys().(*syscall.Stat_t)
	switch {
	case info.IsDir():
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
	case info.Mode().IsRegular():
		if err := copyFile(source, target); err != nil {
			return err
		}
	case info.Mode()&fs.ModeSymlink != 0:
		link, err := os.Readlink(source)
		if err != nil {
			return err
		}
		if err := os.Symlink(link, target); err != nil {
			return err
		}
		return os.Lchown(target, int(owner.Uid), int(owner.Gid))
	default: // Sockets and pipes have no data.
		return nil
	}
	if err := os.Lchown(target, int(owner.Uid), int(owner.Gid)); err != nil {
		return err
	}
	return os.Chmod(target, info.Mode())
}

func copyFile(source, target string) error {
	from, err := os.Open(source)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Create(target)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		return err
	}
	return to.Close()
}

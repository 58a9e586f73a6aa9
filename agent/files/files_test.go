// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/keyed"
)

// reader follows a directory, and records the reported content.
type reader struct {
	*testing.T
	root  string
	pace  pace
	known map[string]string
	end   func()
	some  chan []keyed.Document
}

var quick = pace{settle: 20 * time.Millisecond, comeback: 60 * time.Millisecond, look: 50 * time.Millisecond, patience: time.Second}

func (r *reader) start(s Section) {
	r.Helper()
	r.known, r.some = map[string]string{}, make(chan []keyed.Document)
	d := &driver{section: &s, log: slog.New(slog.DiscardHandler), pace: r.pace}
	ctx, cancel := context.WithCancel(context.Background())
	all, w, err := d.List(ctx)
	if err != nil {
		cancel()
		r.Fatal(err)
	}
	r.take(all)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			some, err := w.Next(ctx)
			if err != nil {
				return
			}
			select {
			case r.some <- some:
			case <-ctx.Done():
				return
			}
		}
	}()
	r.end = func() {
		cancel()
		<-ended
		w.Close()
	}
	r.Cleanup(r.end)
}

func follow(t *testing.T) *reader {
	t.Helper()
	r := &reader{T: t, root: t.TempDir(), pace: quick}
	return r
}

func (r *reader) take(some []keyed.Document) {
	for _, d := range some {
		switch {
		case d.Deleted:
			delete(r.known, d.Key)
		case d.Err != nil:
			r.known[d.Key] = "error: " + d.Err.Error()
		default:
			r.known[d.Key] = string(d.Text)
		}
	}
}

func (r *reader) write(path, text string) {
	r.Helper()
	r.must(os.WriteFile(filepath.Join(r.root, path), []byte(text), 0o600))
}

func (r *reader) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// until waits until these files, and no others, are known: "path text".
func (r *reader) until(files ...string) {
	r.Helper()
	want := map[string]string{}
	for _, f := range files {
		path, text, _ := strings.Cut(f, " ")
		want[path] = text
	}
	end := time.After(20 * time.Second)
	for {
		same := len(want) == len(r.known)
		for path, text := range want {
			now, known := r.known[path]
			same = same && known && strings.HasPrefix(now, text) && (text != "" || now == "")
		}
		if same {
			return
		}
		select {
		case some := <-r.some:
			r.take(some)
		case <-end:
			r.Fatalf("known: %q; want %q", r.known, want)
		}
	}
}

// nothing checks that no change is reported for some time.
func (r *reader) nothing() {
	r.Helper()
	select {
	case some := <-r.some:
		r.Errorf("told: %v", some)
	case <-time.After(5 * quick.settle):
	}
}

func TestFilesAreReadChangedAndGone(t *testing.T) {
	r := follow(t)
	r.write("a.yaml", "1")
	r.start(Section{Directory: r.root})
	r.until("a.yaml 1")
	r.write("b.json", "2")
	r.write("c.yml", "3")
	r.until("a.yaml 1", "b.json 2", "c.yml 3")
	r.write("a.yaml", "4")
	r.must(os.Remove(filepath.Join(r.root, "b.json")))
	r.until("a.yaml 4", "c.yml 3")
}

func TestEditorsFilesAreNoDocuments(t *testing.T) {
	r := follow(t)
	r.start(Section{Directory: r.root})
	for _, name := range []string{".a.yaml.swp", "a.yaml~", "#a.yaml#", ".#a.yaml", "a.yaml.tmp", "a.txt", ".hidden.yaml", "4913", "#a.yaml"} {
		r.write(name, "x")
	}
	r.nothing()
}

func TestARenameOnSaveIsOneChange(t *testing.T) {
	r := follow(t)
	// Longer than a busy machine lets the writer wait.
	r.pace.comeback = 10 * time.Second
	r.write("a.yaml", "1")
	r.start(Section{Directory: r.root})
	// As one editor does it: the file becomes its backup, and another is written.
	r.must(os.Rename(filepath.Join(r.root, "a.yaml"), filepath.Join(r.root, "a.yaml~")))
	r.write("a.yaml", "2")
	some := <-r.some
	if len(some) != 1 || string(some[0].Text) != "2" {
		t.Errorf("%v", some)
	}
	// As another does it: a new file is put in its place.
	r.write(".a.yaml.new", "3")
	r.must(os.Rename(filepath.Join(r.root, ".a.yaml.new"), filepath.Join(r.root, "a.yaml")))
	some = <-r.some
	if len(some) != 1 || string(some[0].Text) != "3" {
		t.Errorf("%v", some)
	}
}

func TestAFileIsReadWhenItIsNoLongerWritten(t *testing.T) {
	r := follow(t)
	// Longer than a busy machine lets the writer wait.
	r.pace.settle = time.Second
	r.start(Section{Directory: r.root})
	file, err := os.Create(filepath.Join(r.root, "a.yaml"))
	r.must(err)
	defer file.Close()
	for range 20 {
		_, err := file.WriteString("part\n")
		r.must(err)
		time.Sleep(5 * time.Millisecond)
	}
	some := <-r.some
	if len(some) != 1 || len(some[0].Text) != 20*5 {
		t.Errorf("%v", some)
	}
}

func TestSubdirectoriesAreReadIfConfigured(t *testing.T) {
	r := follow(t)
	r.must(os.MkdirAll(filepath.Join(r.root, "sub/deep"), 0o700))
	r.write("sub/deep/a.yaml", "1")
	r.must(os.Symlink("..", filepath.Join(r.root, "sub/loop")))
	r.start(Section{Directory: r.root, Subdirectories: true})
	r.until("sub/deep/a.yaml 1")
	r.must(os.Mkdir(filepath.Join(r.root, "new"), 0o700))
	r.write("new/b.yaml", "2")
	r.until("sub/deep/a.yaml 1", "new/b.yaml 2")
	r.must(os.RemoveAll(filepath.Join(r.root, "sub")))
	r.until("new/b.yaml 2")
	r.end()
	r.start(Section{Directory: r.root})
	r.until()
}

func TestAConfigMapIsSwappedAtOnce(t *testing.T) {
	r := follow(t)
	version := func(name, text string) {
		r.must(os.Mkdir(filepath.Join(r.root, name), 0o700))
		r.write(name+"/a.yaml", text)
		r.must(os.Symlink(name, filepath.Join(r.root, "..data_tmp")))
		r.must(os.Rename(filepath.Join(r.root, "..data_tmp"), filepath.Join(r.root, "..data")))
	}
	version("..2026_1", "1")
	r.must(os.Symlink("..data/a.yaml", filepath.Join(r.root, "a.yaml")))
	r.start(Section{Directory: r.root, Subdirectories: true})
	r.until("a.yaml 1")
	version("..2026_2", "2")
	r.must(os.RemoveAll(filepath.Join(r.root, "..2026_1")))
	r.until("a.yaml 2")
}

func TestADirectoryThatIsAwayTakesNothingAway(t *testing.T) {
	r := follow(t)
	root := r.root
	r.root = filepath.Join(root, "conf")
	r.must(os.Mkdir(r.root, 0o700))
	r.write("a.yaml", "1")
	r.write("b.yaml", "1")
	r.start(Section{Directory: r.root})
	r.must(os.RemoveAll(r.root))
	r.nothing()
	r.must(os.Mkdir(r.root, 0o700))
	r.write("a.yaml", "2")
	r.until("a.yaml 2")
	// A link in its place, which then leads elsewhere.
	for _, name := range []string{"one", "two"} {
		r.must(os.Mkdir(filepath.Join(root, name), 0o700))
		r.must(os.WriteFile(filepath.Join(root, name, "a.yaml"), []byte(name), 0o600))
		r.must(os.Symlink(name, filepath.Join(root, "link")))
		r.must(os.RemoveAll(r.root))
		r.must(os.Rename(filepath.Join(root, "link"), r.root))
		r.until("a.yaml " + name)
	}
}

func TestAFileThatCannotBeReadIsAMistake(t *testing.T) {
	r := follow(t)
	r.start(Section{Directory: r.root})
	file, err := os.Create(filepath.Join(r.root, "a.yaml"))
	r.must(err)
	defer file.Close()
	r.must(file.Truncate(maxSize + 1))
	r.until("a.yaml error: more than 64 MiB")
	r.must(file.Truncate(0))
	r.until("a.yaml")
}

func TestADanglingLinkDoesNotAffectOtherFiles(t *testing.T) {
	r := follow(t)
	r.write("a.yaml", "a")
	r.must(os.Symlink("a.yaml/z", filepath.Join(r.root, "through.yaml")))
	r.must(os.Symlink(strings.Repeat("x", 300), filepath.Join(r.root, "long.yaml")))
	r.start(Section{Directory: r.root})
	r.until("a.yaml a", "long.yaml error: open")
	r.write("b.yaml", "b")
	r.until("a.yaml a", "b.yaml b", "long.yaml error: open")
	r.must(os.Remove(filepath.Join(r.root, "long.yaml")))
	r.until("a.yaml a", "b.yaml b")
}

func TestStatusesAreFilesBesideOrElsewhere(t *testing.T) {
	r := follow(t)
	d := &driver{section: &Section{Directory: r.root, StatusDirectory: filepath.Join(r.root, "status")}, log: slog.New(slog.DiscardHandler), pace: quick}
	r.must(d.WriteStatuses(t.Context(), []keyed.StatusUpdate{{Key: "a.yaml", Status: &keyed.Status{State: "Applied"}}, {Key: "sub/b.yaml", Status: &keyed.Status{}}, {Key: "none.yaml"}}))
	text, err := os.ReadFile(filepath.Join(r.root, "status/a.yaml.status"))
	if err != nil || !strings.HasPrefix(string(text), `{"state":"Applied"`) {
		t.Errorf("%s %v", text, err)
	}
	keys, err := d.Statuses(t.Context())
	if err != nil || len(keys) != 2 || keys[0] != "a.yaml" || keys[1] != "sub/b.yaml" {
		t.Errorf("%v %v", keys, err)
	}
	r.must(d.WriteStatuses(t.Context(), []keyed.StatusUpdate{{Key: "a.yaml"}}))
	if keys, _ = d.Statuses(t.Context()); len(keys) != 1 {
		t.Errorf("%v", keys)
	}
}

func TestASectionIsChecked(t *testing.T) {
	for _, s := range []Section{{}, {Directory: "relative"}, {Directory: "/a", StatusDirectory: "b"}} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), "irectory: ") {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if err := (&Section{Directory: "/a", StatusDirectory: "/a"}).Check(); err != nil {
		t.Error(err)
	}
}

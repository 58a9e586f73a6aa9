// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// documented returns the fields that the how-to's table has.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../docs/how-to-observe.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| field | meaning |")
	if !found {
		t.Fatal("docs/how-to-observe.md has no table of fields")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	fields := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\|").FindAllStringSubmatch(table, -1) {
		if fields[row[1]] {
			t.Errorf("docs/how-to-observe.md has the field %q twice", row[1])
		}
		fields[row[1]] = true
	}
	return fields
}

// use is a log field in a line of the program. name is empty if it cannot be determined.
type use struct {
	where token.Position
	name  string
}

// logged returns the log fields of a file: arguments of calls such as e.Log.Warn("...", "error", err).
func logged(files *token.FileSet, path string) ([]use, error) {
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var uses []use
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !isLog(method.X) {
			return true
		}
		var arguments []ast.Expr
		switch method.Sel.Name {
		case "String", "Int", "Int64", "Uint64", "Bool", "Duration", "Time", "Any":
			// slog.String("name", value), wherever it goes.
			if of, ok := method.X.(*ast.Ident); ok && of.Name == "slog" && len(call.Args) == 2 {
				uses = append(uses, use{files.Position(call.Pos()), literal(call.Args[0])})
			}
			return true
		case "Debug", "Info", "Warn", "Error":
			arguments = call.Args[min(1, len(call.Args)):]
		case "DebugContext", "InfoContext", "WarnContext", "ErrorContext":
			arguments = call.Args[min(2, len(call.Args)):]
		case "Log", "LogAttrs":
			arguments = call.Args[min(3, len(call.Args)):]
		case "With":
			arguments = call.Args
		}
		if call.Ellipsis.IsValid() && len(arguments) > 0 {
			// They were made by calls that are looked at by themselves.
			arguments = arguments[:len(arguments)-1]
		}
		for i := 0; i < len(arguments); i += 2 {
			if _, made := arguments[i].(*ast.CallExpr); made {
				// slog.String("name", value) is both, and found by itself.
				i--
				continue
			}
			name := literal(arguments[i])
			uses = append(uses, use{files.Position(arguments[max(i, 0)].Pos()), name})
		}
		return true
	})
	return uses, nil
}

// isLog recognizes loggers by their names: log, planeLog, e.Log, config.Log.With(...).
func isLog(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name == "slog" || strings.HasSuffix(strings.ToLower(x.Name), "log")
	case *ast.SelectorExpr:
		return strings.HasSuffix(strings.ToLower(x.Sel.Name), "log")
	case *ast.CallExpr:
		with, ok := x.Fun.(*ast.SelectorExpr)
		return ok && with.Sel.Name == "With" && isLog(with.X)
	}
	return false
}

func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		if s, err := strconv.Unquote(l.Value); err == nil {
			return s
		}
	}
	return ""
}

func TestEveryFieldOfTheLogIsInTheTable(t *testing.T) {
	fields := documented(t)
	for _, name := range []string{"time", "level", "msg"} {
		if !fields[name] {
			t.Errorf("the table has no %q, which every line has", name)
		}
	}
	files := token.NewFileSet()
	found := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		uses, err := logged(files, path)
		found += len(uses)
		for _, u := range uses {
			if !fields[u.name] {
				t.Errorf("%v: the field %q is not in the table of docs/how-to-observe.md: use a name that is, or add it", u.where, u.name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 20 {
		t.Errorf("only %d fields were found", found)
	}
}

func TestFieldsAreFoundHoweverTheyAreWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.go")
	source := `package x
func f() {
	slog.Warn("said", "a", 1, slog.Int("b", 2), "c", 3)
	e.Log.With("d", 4).Info("said", name, 5)
	log.LogAttrs(ctx, level, "said", slog.String("e", "f"))
	planeLog.ErrorContext(ctx, "said", "g", 7)
	other.Error("no", "log")
}`
	if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	uses, err := logged(token.NewFileSet(), path)
	var names []string
	for _, u := range uses {
		names = append(names, u.name)
	}
	slices.Sort(names)
	if want := []string{"", "a", "b", "c", "d", "e", "g"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%v, not %v: %v", fmt.Sprintf("%q", names), want, err)
	}
}

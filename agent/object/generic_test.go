// SPDX-License-Identifier: Apache-2.0

package object_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// kindsInGenericCode are the exceptions of TestNoGenericCodeKnowsAKind: a file and a name in it.
var kindsInGenericCode = map[[2]string]bool{
	// A capture of one session runs in the session's data plane.
	{"../server/counters.go", "Session"}: false,
	// The example of a change in the OpenAPI document.
	{"../rest/operations.go", "Vrf"}: false,
}

// TestNoGenericCodeKnowsAKind: rules of a kind are in the folder of its concept, agent/CONCEPT/rules.
func TestNoGenericCodeKnowsAKind(t *testing.T) {
	registry, err := object.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	// The Go names of the contract's messages and enums, without those that describe kinds.
	var names []string
	add := func(d protoreflect.Descriptor, goName string) {
		if d.ParentFile().Package() == "sluice.v1" && d.ParentFile().Path() != "schema.proto" {
			names = append(names, goName)
		}
	}
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		add(m.Descriptor(), reflect.TypeOf(m.Zero().Interface()).Elem().Name())
		return true
	})
	protoregistry.GlobalTypes.RangeEnums(func(e protoreflect.EnumType) bool {
		add(e.Descriptor(), reflect.TypeOf(e.New(0)).Name())
		return true
	})
	if len(names) < 100 {
		t.Fatalf("the contract has %d messages and enums", len(names))
	}
	var kinds, files []string
	for _, k := range registry.Kinds() {
		kinds = append(kinds, k.Name)
	}
	for _, folder := range []string{".", "../reconcile", "../intent", "../server", "../rest", "../metrics", "../dataplane"} {
		some, err := filepath.Glob(folder + "/*.go")
		if err != nil || len(some) == 0 {
			t.Fatal(folder, err)
		}
		files = append(files, some...)
	}
	set := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		// Other packages than this one know the messages of the agent's API.
		known := kinds
		if filepath.Dir(name) == "." {
			known = names
		}
		report := func(n ast.Node, found, text string) {
			exception := [2]string{name, found}
			if _, is := kindsInGenericCode[exception]; is {
				kindsInGenericCode[exception] = true
				return
			}
			t.Errorf("%s: %s belongs to agent/CONCEPT/rules", set.Position(n.Pos()), text)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				from, ok := n.X.(*ast.Ident)
				if !ok || from.Name != "api" {
					return true
				}
				for _, one := range known {
					if n.Sel.Name == one || strings.HasPrefix(n.Sel.Name, one+"_") {
						report(n, one, "api."+n.Sel.Name)
					}
				}
			case *ast.BasicLit:
				text, err := strconv.Unquote(n.Value)
				if n.Kind == token.STRING && err == nil && (strings.HasPrefix(text, "sluice.v1.") || registry.Kind(text) != nil) {
					report(n, text, n.Value)
				}
			}
			return true
		})
	}
	for exception, found := range kindsInGenericCode {
		if !found {
			t.Errorf("%s does not name %s any more: delete the exception", exception[0], exception[1])
		}
	}
}

// TestNoGenericCodeKnowsAConcept: the RPCs, commands and events of a concept are in its folder. Ports, sessions and routes are no concepts of their own
// here: each gateway has them.
func TestNoGenericCodeKnowsAConcept(t *testing.T) {
	generic := map[string]bool{"agent.proto": true, "dataplane.proto": true, "graph.proto": true, "module.proto": true, "schema.proto": true, "port.proto": true, "session.proto": true, "ip.proto": true}
	names := map[string]string{}
	protoregistry.GlobalFiles.RangeFilesByPackage("sluice.v1", func(f protoreflect.FileDescriptor) bool {
		if generic[f.Path()] {
			return true
		}
		for i := range f.Messages().Len() {
			names[string(f.Messages().Get(i).Name())] = f.Path()
		}
		for i := range f.Enums().Len() {
			names[string(f.Enums().Get(i).Name())] = f.Path()
		}
		for i := range f.Services().Len() {
			service := string(f.Services().Get(i).Name())
			for _, n := range []string{service, service + "Server", service + "Client", "Register" + service + "Server", "New" + service + "Client", "Unimplemented" + service + "Server"} {
				names[n] = f.Path()
			}
		}
		return true
	})
	if len(names) < 100 {
		t.Fatalf("the concepts have %d messages", len(names))
	}
	set := token.NewFileSet()
	for _, folder := range []string{"audit", "broker", "cli", "dataplane", "dataplane/dataplanetest", "intent", "keyed", "reconcile", "remote", "rest", "server"} {
		files, err := filepath.Glob("../" + folder + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatal(folder, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				selector, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if from, ok := selector.X.(*ast.Ident); ok && from.Name == "api" {
					base, _, _ := strings.Cut(selector.Sel.Name, "_")
					if of := names[base]; of != "" {
						t.Errorf("%s: api.%s of %s belongs to the folder of its concept", set.Position(n.Pos()), selector.Sel.Name, of)
					}
				}
				return true
			})
		}
	}
}

func TestSeveralConceptsHaveRulesOfAKind(t *testing.T) {
	rule := func(name string) object.KindRules {
		return object.Rules[*api.Vrf]{Check: func(_ *api.Vrf, add object.Report) { add("description", name, "", "") },
			Claims: func(_ *api.Vrf, c *object.Claimer) { c.Take([]byte(name), "", "description", -1) },
			Local:  func(*api.Vrf) []object.Held { return []object.Held{{Field: name}} }}
	}
	r, err := object.NewRegistry([]object.KindRules{rule("first")}, []object.KindRules{rule("second"), object.Rules[*api.Vrf]{Warn: func(*api.Vrf, object.Report) {}}})
	if err != nil {
		t.Fatal(err)
	}
	o := &object.Object{Kind: "Vrf", Name: "red", Spec: &api.Vrf{}}
	errs, claims, local := r.Check(o), r.Claims(o), r.Local(o)
	if len(errs) != 2 || errs[0].Problem != "first" || errs[1].Problem != "second" {
		t.Errorf("errors %v", errs)
	}
	if len(claims) != 2 || len(local) != 2 || local[1].Field != "second" {
		t.Errorf("claims %v, local %v", claims, local)
	}
	apart := object.Rules[*api.Vrf]{Apart: func(*api.Vrf) *object.Shared { return nil }}
	if _, err := object.NewRegistry([]object.KindRules{apart}, []object.KindRules{apart}); err == nil || err.Error() != "rules of Vrf: two concepts have Apart" {
		t.Errorf("error %v", err)
	}
}

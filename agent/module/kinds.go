// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// AddKinds makes the kinds known that a module's descriptors have.
func AddKinds(r *object.Registry, module string, packed []byte) error {
	k, err := Parse(module, packed)
	if err != nil {
		return err
	}
	return r.Add(object.Module{Name: module, Descriptors: packed}, k.Messages)
}

// add makes the kinds of modules known, in an order in which each refers to known ones. It returns by module why some cannot be.
func add(r *object.Registry, all []object.Module) map[string]error {
	for {
		failed := map[string]error{}
		var rest []object.Module
		for _, m := range all {
			if err := AddKinds(r, m.Name, m.Descriptors); err != nil {
				failed[m.Name], rest = err, append(rest, m)
			}
		}
		if len(rest) == 0 || len(rest) == len(all) {
			return failed
		}
		all = rest
	}
}

// ServeKinds registers the service Kinds of api/module.proto.
func ServeKinds(s grpc.ServiceRegistrar, r *object.Registry) {
	api.RegisterKindsServer(s, kindsServer{registry: r})
}

type kindsServer struct {
	api.UnimplementedKindsServer
	registry *object.Registry
}

// GetModuleKinds implements api.KindsServer.
func (s kindsServer) GetModuleKinds(context.Context, *api.ModuleKindsQuery) (*api.ModuleKindsList, error) {
	list := &api.ModuleKindsList{}
	for _, m := range s.registry.Modules() {
		list.Modules = append(list.Modules, &api.ModuleKinds{Module: m.Name, Descriptors: m.Descriptors})
	}
	return list, nil
}

// FetchKinds asks an agent for the kinds that modules added, and makes those known that are not.
func FetchKinds(ctx context.Context, c grpc.ClientConnInterface, r *object.Registry) error {
	list, err := api.NewKindsClient(c).GetModuleKinds(ctx, &api.ModuleKindsQuery{})
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, m := range r.Modules() {
		known[m.Name] = true
	}
	for _, m := range list.GetModules() {
		if known[m.GetModule()] {
			continue
		}
		if err := AddKinds(r, m.GetModule(), m.GetDescriptors()); err != nil {
			return fmt.Errorf("module %s: %w", m.GetModule(), err)
		}
	}
	return nil
}

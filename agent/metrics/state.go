// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/object"
)

// A stateMetric is a number of the answer of a state that its annotation makes a metric.
type stateMetric struct {
	metric
	// The list whose elements have it; nil: the answer itself. Of these, the field with the number and the one that is a label, which may be nil.
	list, value, label protoreflect.FieldDescriptor
	// The value of a label of its own; empty: it has none.
	own string
}

// stateMetrics are those of a state of data planes.
type stateMetrics struct {
	*object.State
	all []stateMetric
}

// metricsOf returns the metrics that annotations declare.
func metricsOf(registry *object.Registry) (found []stateMetrics) {
	known := map[string]metric{}
	for _, st := range registry.States() {
		s := stateMetrics{State: st}
		add := func(notes *api.Metric, list, value, label protoreflect.FieldDescriptor) {
			one := stateMetric{list: list, value: value, label: label}
			labels := []string{"dataplane"}
			if label != nil {
				labels = append(labels, object.Notes(label).GetLabel())
			}
			name, own, has := strings.Cut(notes.GetLabel(), "=")
			if one.own = own; has {
				labels = append(labels, name)
			}
			var there bool
			if one.metric, there = known[notes.GetName()]; !there {
				kind := gauge
				if strings.HasSuffix(notes.GetName(), "_total") {
					kind = counter
				}
				one.metric = kind(notes.GetName(), notes.GetHelp(), labels...)
				known[notes.GetName()] = one.metric
			}
			s.all = append(s.all, one)
		}
		each(st.Reply.Descriptor(), func(f protoreflect.FieldDescriptor) {
			notes := object.Notes(f).GetMetric()
			if !f.IsList() || f.Message() == nil {
				if notes != nil {
					add(notes, nil, f, nil)
				}
				return
			}
			var label protoreflect.FieldDescriptor
			each(f.Message(), func(below protoreflect.FieldDescriptor) {
				if object.Notes(below).GetLabel() != "" {
					label = below
				}
			})
			if notes != nil {
				add(notes, f, f.Message().Fields().ByJSONName(notes.GetValue()), label)
			}
			each(f.Message(), func(below protoreflect.FieldDescriptor) {
				if notes := object.Notes(below).GetMetric(); notes != nil {
					add(notes, f, below, label)
				}
			})
		})
		if len(s.all) > 0 && dataplane.Answers(st.Query.Descriptor()) {
			found = append(found, s)
		}
	}
	return found
}

func each(d protoreflect.MessageDescriptor, yield func(protoreflect.FieldDescriptor)) {
	for i := range d.Fields().Len() {
		yield(d.Fields().Get(i))
	}
}

// describe passes on each metric once.
func describe(all []stateMetrics, out chan<- *prometheus.Desc) {
	added := map[*prometheus.Desc]bool{}
	for _, s := range all {
		for _, m := range s.all {
			if !added[m.description] {
				added[m.description] = true
				out <- m.description
			}
		}
	}
}

// add queries a data plane, and passes on its answer.
func (s stateMetrics) add(ctx context.Context, to scrape, plane string, client *dataplane.Client) error {
	reply, err := client.Read(ctx, s.Query.New().Interface(), s.Reply)
	if err != nil {
		return err
	}
	m := reply.ProtoReflect()
	for _, one := range s.all {
		if one.list == nil {
			to.number(one, m, plane)
			continue
		}
		added := map[string]bool{}
		for i := range m.Get(one.list).List().Len() {
			element := m.Get(one.list).List().Get(i).Message()
			label := element.Get(one.label).String()
			if !added[label] {
				added[label] = true
				to.number(one, element, plane, label)
			}
		}
	}
	return nil
}

func (s scrape) number(one stateMetric, m protoreflect.Message, labels ...string) {
	if one.own != "" {
		labels = append(labels, one.own)
	}
	switch v := m.Get(one.value); one.value.Kind() {
	case protoreflect.BoolKind:
		s.add(one.metric, truth(v.Bool()), labels...)
	default:
		s.add(one.metric, float64(v.Uint()), labels...)
	}
}

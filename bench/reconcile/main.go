// SPDX-License-Identifier: Apache-2.0

// Reconcile measures the control plane: the time until many objects are applied, or one among many, and their memory.
//
// The scenarios called mock run in this process: package intent, which keeps history in memory, and a data plane that takes everything.
// The others start the agent and the data plane as they are shipped, and speak to the agent as any client does; or, called services,
// have services in the agent that produce objects.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
)

// result is a row of the bench's JSON, without figures that were not measured.
type result struct {
	Scenario string `json:"scenario"`
	// How many objects there are, and how many of them were changed one by one.
	Objects int `json:"objects"`
	Changes int `json:"changes,omitempty"`
	// Wall clock; of all processors: of the agent (or of this process, against a mock), and of the data plane's main thread.
	Seconds      float64 `json:"seconds"`
	AgentCPU     float64 `json:"agent_cpu_seconds,omitempty"`
	DataplaneCPU float64 `json:"dataplane_cpu_seconds,omitempty"`
	// Of that, until a data plane that was started again answers.
	StartSeconds float64 `json:"start_seconds,omitempty"`
	// Of single changes, in microseconds: from the request to the answer, which comes when the data plane has the change.
	P50 float64 `json:"p50_us,omitempty"`
	P99 float64 `json:"p99_us,omitempty"`
	// Memory after a garbage collection, and memory from the kernel without pages of files, for each object: when all
	// are applied, and the maximum until then.
	Bytes    float64 `json:"bytes_per_object,omitempty"`
	Resident float64 `json:"resident_bytes_per_object,omitempty"`
	Peak     float64 `json:"peak_bytes_per_object,omitempty"`
	// Where the configuration is stored: "disk" or "memory".
	Store string `json:"store,omitempty"`
	// The 50th and 99th percentile of writing a page to that place and syncing it: the least cost of a durable commit.
	SyncP50 float64 `json:"sync_p50_us,omitempty"`
	SyncP99 float64 `json:"sync_p99_us,omitempty"`
}

func main() {
	if os.Getenv(socketVariable) != "" {
		os.Exit(asAgent())
	}
	only := flag.String("only", "", "the scenarios that this regular expression finds")
	to := flag.String("json", "", "write the results into this file")
	var p programs
	flag.StringVar(&p.agent, "agent", "build/sluice", "the agent")
	flag.StringVar(&p.dataplane, "dataplane", "build/dataplane/sluice-dataplane", "the data plane")
	flag.StringVar(&p.disk, "disk", "build", "a directory on the disk that is measured")
	flag.StringVar(&p.memory, "memory", "/dev/shm", "a directory in memory")
	flag.BoolVar(&p.huge, "huge", false, "the data plane has huge pages")
	flag.IntVar(&p.objects, "objects", 200_000, "sessions of the scenarios with a real data plane")
	flag.Parse()
	if err := run(*only, *to, p); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(only, to string, p programs) error {
	chosen, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	results := []result{}
	say := func(r result) {
		if len(results) == 0 {
			fmt.Printf("%-28s%10s%10s%10s%10s%10s%10s%10s%10s%10s\n", "scenario", "objects", "seconds", "agent cpu", "plane cpu", "p50 us",
				"p99 us", "B/object", "resident", "peak")
		}
		fmt.Printf("%-28s%10d%10.3f%10.3f%10.3f%10.0f%10.0f%10.0f%10.0f%10.0f\n", r.Scenario, r.Objects, r.Seconds, r.AgentCPU, r.DataplaneCPU,
			r.P50, r.P99, r.Bytes, r.Resident, r.Peak)
		results = append(results, r)
	}
	if err := mocks(chosen, say); err != nil {
		return err
	}
	// Return their memory before the others are measured, not meanwhile.
	debug.FreeOSMemory()
	if err := p.groups(chosen, say); err != nil {
		return err
	}
	if err := p.run(chosen, say); err != nil {
		return err
	}
	if err := p.services(chosen, say); err != nil {
		return err
	}
	if to == "" {
		return nil
	}
	text, err := json.MarshalIndent(results, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(to, append(text, '\n'), 0o644)
}

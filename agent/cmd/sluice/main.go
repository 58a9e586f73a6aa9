// SPDX-License-Identifier: Apache-2.0

// Sluice: the agent and the command line are one program.
package main

import (
	"os"

	"sluice.dev/sluice/agent/agf"
	"sluice.dev/sluice/agent/cli"
	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/gtpu"
	"sluice.dev/sluice/agent/ike"
	"sluice.dev/sluice/agent/ipoe"
	"sluice.dev/sluice/agent/n2"
	"sluice.dev/sluice/agent/n3iwf"
	"sluice.dev/sluice/agent/port"
	"sluice.dev/sluice/agent/portal"
	"sluice.dev/sluice/agent/pppoe"
	"sluice.dev/sluice/agent/radius"
	"sluice.dev/sluice/agent/subscriber"
)

func main() {
	os.Exit(cli.Main(
		dhcp.Definition,
		gtpu.Definition,
		ike.Definition,
		ipoe.Definition,
		agf.Definition,
		n2.Definition,
		n3iwf.Definition,
		port.Definition,
		portal.Definition,
		pppoe.Definition,
		subscriber.Definition,
		radius.Definition,
	))
}

// Sluice: the agent and the command line are one program.
package main

import (
	"os"

	"sluice.dev/sluice/agent/cli"
)

func main() {
	os.Exit(cli.Main())
}

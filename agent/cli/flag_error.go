// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError replaces pflag's error by one that names the accepted values.
func flagError(c *cobra.Command, err error) error {
	help := fmt.Sprintf("; see `%s --help`", c.CommandPath())
	var wrong *pflag.InvalidValueError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("%w%s", err, help)
	}
	f, problem := wrong.GetFlag(), wrong.Unwrap().Error()
	var number *strconv.NumError
	if errors.As(err, &number) {
		problem = "accepted: " + accepted(f.Value.Type())
	}
	return fmt.Errorf("--%s %q: %s%s", f.Name, wrong.GetValue(), problem, help)
}

// accepted describes the accepted values of a flag's type.
func accepted(kind string) string {
	switch kind {
	case "bool":
		return "true or false"
	case "uint32":
		return fmt.Sprintf("a whole number from 0 to %d", uint32(math.MaxUint32))
	case "uint64", "uint":
		return fmt.Sprintf("a whole number from 0 to %d", uint64(math.MaxUint64))
	}
	return "a whole number"
}

// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"hash/maphash"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

// seed of digests: they are compared within one run of the agent.
var seed = maphash.MakeSeed()

// digestOf is equal for Sessions with equal fields, and not 0.
func digestOf(s *api.Session) uint64 {
	packed, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
	if err != nil {
		// A text that is not UTF-8. The registry refuses such an object, whatever the digest is.
		return 1
	}
	return maphash.Bytes(seed, packed) | 1
}

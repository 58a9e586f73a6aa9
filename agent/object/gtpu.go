package object

import (
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

func checkGtpuPeer(spec proto.Message, add report) {
	p, ok := spec.(*api.GtpuPeer)
	if !ok {
		return
	}
	checkHost("address", p.Address, add)
	if p.NoEcho && (p.EchoInterval != 0 || p.ResponseTime != 0 || p.Requests != 0) {
		add("noEcho", "there is nothing to send that often", "true", "to leave it or echoInterval, responseTime and requests out")
	}
}

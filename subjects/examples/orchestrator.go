// Hands off a chat with nats.go and waits for its answer: go run orchestrator.go "What is left to do?"
//
// NATS_URL is the address of the server. The answer is read from the stream, so it is not lost if this program or its
// connection fails: run it again with the same id in HANDOFF_ID to get the same answer.
//
// USER_ID is the user on whose behalf the manager acts. The lease for that is issued by the gateway at GATEWAY_URL, with
// the orchestrator's token in GATEWAY_TOKEN_FILE.
package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

type answer struct {
	Message *struct{ Content string }
	Error   *struct{ Code, Message string }
}

func main() {
	connection, err := nats.Connect(setting("NATS_URL", nats.DefaultURL))
	check(err)
	defer connection.Close()
	jetstream, err := connection.JetStream()
	check(err)

	id := setting("HANDOFF_ID", newID())
	body, err := json.Marshal(map[string]any{
		"schema_version": 1,
		"handoff_id":     id,
		"kind":           "chat",
		"issued_at":      time.Now().UTC().Format(time.RFC3339Nano),
		"payload": map[string]any{
			"model":    "cynodeai.pm",
			"messages": []map[string]string{{"role": "user", "content": os.Args[1]}},
		},
	})
	check(err)
	// The server stores a message id once, so it is safe to publish again if the acknowledgement was lost.
	handoff := nats.NewMsg("pma.handoff.chat")
	handoff.Data = body
	if user := os.Getenv("USER_ID"); user != "" {
		handoff.Header.Set("Cynode-Lease", issueLease(user, id))
	}
	_, err = jetstream.PublishMsg(handoff, nats.MsgId(id))
	check(err)

	answers, err := jetstream.SubscribeSync("pma.run."+id+".completion",
		nats.BindStream("CYNODE_RUNS"), nats.OrderedConsumer(), nats.DeliverAll())
	check(err)
	message, err := answers.NextMsg(time.Minute)
	check(err)
	var found answer
	check(json.Unmarshal(message.Data, &found))
	if found.Error != nil {
		log.Fatalf("%s: %s", found.Error.Code, found.Error.Message)
	}
	fmt.Println(found.Message.Content)
}

// issueLease calls the gateway's tool lease.issue, which is one HTTP request.
func issueLease(user, handoffID string) string {
	token, err := os.ReadFile(os.Getenv("GATEWAY_TOKEN_FILE"))
	check(err)
	call, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "tools/call",
		"params": map[string]any{
			"name":      "lease.issue",
			"arguments": map[string]any{"agent": "project_manager", "user_id": user, "handoff_id": handoffID},
		},
	})
	check(err)
	request, err := http.NewRequest("POST", setting("GATEWAY_URL", "http://127.0.0.1:8790/mcp"), bytes.NewReader(call))
	check(err)
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	response, err := http.DefaultClient.Do(request)
	check(err)
	defer response.Body.Close()
	var reply struct {
		Error  *struct{ Message string }
		Result struct {
			IsError           bool
			StructuredContent struct{ Lease, Message string }
		}
	}
	check(json.NewDecoder(response.Body).Decode(&reply))
	if reply.Error != nil {
		log.Fatalf("no lease: %s", reply.Error.Message)
	}
	if reply.Result.IsError {
		log.Fatalf("no lease: %s", reply.Result.StructuredContent.Message)
	}
	return reply.Result.StructuredContent.Lease
}

// newID returns a UUID version 4.
func newID() string {
	var id [16]byte
	_, err := rand.Read(id[:])
	check(err)
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

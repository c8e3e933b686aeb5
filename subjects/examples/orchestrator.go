// Hands a chat off and waits for its answer, with nats.go: go run orchestrator.go "What is left to do?"
//
// NATS_URL says where the server is. The answer is read from the stream, so nothing is missed if this program, or the
// connection, goes away in between: run it again with HANDOFF_ID set to the same id, and it gets the same answer.
package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log"
	"os"
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
	// With its id the server takes a handoff once, so that publishing again after a lost confirmation does no harm.
	_, err = jetstream.Publish("pma.handoff.chat", body, nats.MsgId(id))
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

// newID makes a UUID of version 4.
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

import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.BatchReceivePolicy;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** Reads all messages of a topic several times, and prints what the last time cost, as JSON. */
class ConsumerOfMessages {
    public static void main(String[] words) throws Exception {
        int messages = Integer.parseInt(words[2]);
        int queue = Integer.parseInt(words[3]);
        int warm = Integer.parseInt(words[4]);
        try (PulsarClient client = PulsarClient.builder().serviceUrl(words[0]).build()) {
            for (int turn = 0; turn < warm; turn++) {
                read(client, words[1], queue, messages);
            }
            long cpu = cpu();
            double seconds = read(client, words[1], queue, messages);
            Runtime runtime = Runtime.getRuntime();
            System.out.printf(
                    java.util.Locale.ROOT,
                    "{\"rate\": %f, \"cpu_us\": %f, \"memory_mib\": %f}%n",
                    messages / seconds,
                    (cpu() - cpu) / 1e3 / messages,
                    (runtime.totalMemory() - runtime.freeMemory()) / 1048576.0);
        }
        System.exit(0);
    }

    private static double read(PulsarClient client, String topic, int queue, int messages)
            throws Exception {
        BatchReceivePolicy policy = BatchReceivePolicy.builder()
                .maxNumMessages(100).timeout(1, TimeUnit.MILLISECONDS).build();
        try (Consumer<byte[]> consumer = client.newConsumer()
                .topic(topic)
                .subscriptionName("java-" + System.nanoTime())
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .receiverQueueSize(queue)
                .batchReceivePolicy(policy)
                .subscribe()) {
            consumer.acknowledge(consumer.receive());
            long started = System.nanoTime();
            int left = messages - 1;
            long size = 0;
            while (left > 0) {
                for (Message<byte[]> message : consumer.batchReceive()) {
                    size += message.getData().length;
                    consumer.acknowledgeAsync(message);
                    left--;
                }
            }
            double seconds = (System.nanoTime() - started) / 1e9;
            consumer.unsubscribe();
            return seconds;
        }
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean)
                        java.lang.management.ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime();
    }
}

package dev.slipway.jmx.engine;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.MessageDigest;
import java.security.PublicKey;
import java.security.SecureRandom;
import java.security.Signature;
import java.security.spec.X509EncodedKeySpec;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Function;

/**
 * Takes configurations that the operator signed, so that a new rule needs no further injector.
 *
 * <p>Everything in the network of the pod can reach the port. So a configuration counts only with a signature of the
 * key that the injector named, over the configuration, this endpoint, and a number that is used once: a message that
 * somebody recorded cannot be sent again, nor to another JVM.
 */
final class Control {
  static final String PATH = "/-/config";
  /** Most bytes of a configuration. */
  static final int LIMIT = 256 << 10;

  private static final String CONTEXT = "slipway-jmx-config/1";
  private static final String ALGORITHM = "SHA256withRSA";

  private static final SecureRandom RANDOM = new SecureRandom();

  private final Function<Map<String, String>, Map<String, String>> engine;
  private String id = "";
  private String audience = "";
  private PublicKey key;
  private String nonce = "";
  private String refusal = "";

  Control(Function<Map<String, String>, Map<String, String>> engine) {
    this.engine = engine;
  }

  /**
   * Takes the key from a request of an injector, if it names one.
   *
   * @throws GeneralSecurityException the key cannot be read
   */
  synchronized void accept(Map<String, String> request) throws GeneralSecurityException {
    id = String.valueOf(request.get("id"));
    String text = request.get("publicKey");
    if (text != null && !text.isEmpty()) {
      // RSA: smaller runtimes have no elliptic curves before Java 22.
      byte[] encoded = Base64.getDecoder().decode(text);
      key = KeyFactory.getInstance("RSA").generatePublic(new X509EncodedKeySpec(encoded));
      audience = String.valueOf(request.get("audience"));
    }
    renew();
  }

  /** Makes what was signed so far worthless. */
  synchronized void renew() {
    byte[] random = new byte[16];
    RANDOM.nextBytes(random);
    nonce = hex(random);
  }

  /** Keeps why a configuration was refused: nobody waits for the answer if it came from a file. */
  synchronized void noteRefusal(Map<String, String> call, String reason, String message) {
    String text = String.valueOf(message).replace('\n', ' ');
    refusal =
        reason.isEmpty()
            ? ""
            : "refusedHash=" + call.get("configHash") + "\nrefusedReason=" + reason + "\nrefusedMessage=" + text + "\n";
  }

  /** Returns what the operator has to know before it signs. */
  synchronized String describe(String configHash, String version, boolean closed) {
    String text = "id=" + id + "\nconfigHash=" + configHash + "\nversion=" + version + "\n";
    // The message may name beans, which are for clients with a login.
    text += closed ? "" : refusal;
    return key == null ? text : text + "audience=" + audience + "\nnonce=" + nonce + "\n";
  }

  /** Says whether the operator signed a configuration for this endpoint, and for now. */
  synchronized boolean isSigned(byte[] config, String signature) {
    if (key == null) {
      return false;
    }
    try {
      Signature verifier = Signature.getInstance(ALGORITHM);
      verifier.initVerify(key);
      String text = String.join("\n", CONTEXT, id, audience, nonce, hash(config));
      verifier.update(text.getBytes(StandardCharsets.UTF_8));
      return verifier.verify(Base64.getDecoder().decode(signature));
    } catch (GeneralSecurityException | IllegalArgumentException e) {
      return false;
    }
  }

  /** Puts a configuration in; the answer has a reason if it was refused, and then nothing has changed. */
  Map<String, String> apply(byte[] config, long limitMillis) throws GeneralSecurityException {
    Map<String, String> call = new HashMap<>();
    call.put("command", "reconfigure");
    call.put("configText", new String(config, StandardCharsets.UTF_8));
    call.put("configHash", hash(config));
    call.put("limitMillis", String.valueOf(limitMillis));
    return engine.apply(call);
  }

  private static String hash(byte[] content) throws GeneralSecurityException {
    return hex(MessageDigest.getInstance("SHA-256").digest(content));
  }

  static String hex(byte[] content) {
    StringBuilder text = new StringBuilder();
    for (byte each : content) {
      text.append(String.format("%02x", each));
    }
    return text.toString();
  }
}

package dev.slipway.jmx.engine;

import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.Base64;
import java.util.Map;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;

/** Who may read the metrics: holders of a password, of a certificate, or everyone. */
final class Access {
  private static final String BASIC = "Basic ";

  /** How connections are encrypted; null for not at all. */
  final SSLContext context;

  /** Whether the metrics are for clients with a certificate only. */
  final boolean clients;

  private final String encryption;
  private final byte[] salt;
  private final byte[] digest;

  /**
   * Reads the request of an injector.
   *
   * @throws GeneralSecurityException a certificate or a key cannot be read, or they do not belong together
   */
  Access(Map<String, String> request) throws GeneralSecurityException {
    String certificate = request.getOrDefault("tlsCertificate", "");
    String authorities = request.getOrDefault("tlsClients", "");
    context = certificate.isEmpty() ? null : Certificates.load(certificate, request.get("tlsKey"), authorities);
    encryption = String.join("\n", certificate, request.getOrDefault("tlsKey", ""), authorities);
    clients = context != null && !authorities.isEmpty();
    salt = request.getOrDefault("authSalt", "").getBytes(StandardCharsets.UTF_8);
    String hash = request.getOrDefault("authHash", "");
    digest = hash.isEmpty() ? null : hash.getBytes(StandardCharsets.UTF_8);
  }

  /** Says whether a request may read the metrics. */
  boolean allows(Connection.Request request) throws GeneralSecurityException {
    return (!clients || request.certified) && (digest == null || hasPassword(request));
  }

  /** Encrypts a connection with TLS 1.2 or later; the handshake comes with the first byte. */
  SSLSocket encrypt(Socket socket) throws IOException {
    SSLSocket channel = (SSLSocket) context.getSocketFactory().createSocket(socket, null, socket.getPort(), true);
    channel.setUseClientMode(false);
    channel.setEnabledProtocols(
        Arrays.stream(channel.getSupportedProtocols())
            .filter(each -> each.equals("TLSv1.2") || each.equals("TLSv1.3"))
            .toArray(String[]::new));
    // Wanted and not needed: the operator has no certificate, and signs what it sends.
    channel.setWantClientAuth(clients);
    return channel;
  }

  boolean isLike(Access other) {
    return encryption.equals(other.encryption);
  }

  boolean isClosed() {
    return clients || digest != null;
  }

  boolean asksForPassword() {
    return digest != null;
  }

  private boolean hasPassword(Connection.Request request) throws GeneralSecurityException {
    String header = request.header("authorization");
    if (!header.startsWith(BASIC)) {
      return false;
    }
    try {
      MessageDigest hash = MessageDigest.getInstance("SHA-256");
      hash.update(salt);
      byte[] found = hash.digest(Base64.getDecoder().decode(header.substring(BASIC.length()).trim()));
      // The time of the comparison tells nothing.
      return MessageDigest.isEqual(Control.hex(found).getBytes(StandardCharsets.UTF_8), digest);
    } catch (IllegalArgumentException e) {
      return false;
    }
  }
}

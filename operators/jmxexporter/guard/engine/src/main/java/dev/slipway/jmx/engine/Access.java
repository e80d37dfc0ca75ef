package dev.slipway.jmx.engine;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpsExchange;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.Map;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLPeerUnverifiedException;

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
  boolean allows(HttpExchange exchange) throws GeneralSecurityException {
    return (!clients || hasCertificate(exchange)) && (digest == null || hasPassword(exchange));
  }

  boolean isEncryptedLike(Access other) {
    return encryption.equals(other.encryption);
  }

  boolean asksForPassword() {
    return digest != null;
  }

  /** A certificate that the authorities did not sign ends the handshake, so any that is here is good. */
  private static boolean hasCertificate(HttpExchange exchange) {
    try {
      return ((HttpsExchange) exchange).getSSLSession().getPeerCertificates().length > 0;
    } catch (SSLPeerUnverifiedException e) {
      return false;
    }
  }

  private boolean hasPassword(HttpExchange exchange) throws GeneralSecurityException {
    String header = String.valueOf(exchange.getRequestHeaders().getFirst("Authorization"));
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

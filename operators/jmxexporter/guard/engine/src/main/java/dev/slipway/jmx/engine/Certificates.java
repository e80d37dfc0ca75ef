package dev.slipway.jmx.engine;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.PublicKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Reads certificates and keys as Secrets have them, in PEM. */
final class Certificates {
  private static final Pattern KEY =
      Pattern.compile("-----BEGIN ((?:RSA |EC )?)PRIVATE KEY-----([A-Za-z0-9+/=\\s]+)-----END");
  private static final char[] PASSWORD = {};

  private Certificates() {}

  static SSLContext load(String certificate, String key, String authorities) throws GeneralSecurityException {
    try {
      Certificate[] chain = readCertificates(certificate);
      KeyStore keys = KeyStore.getInstance(KeyStore.getDefaultType());
      keys.load(null, PASSWORD);
      keys.setKeyEntry("endpoint", readKey(String.valueOf(key), chain[0].getPublicKey()), PASSWORD, chain);
      KeyManagerFactory own = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
      own.init(keys, PASSWORD);
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(own.getKeyManagers(), authorities.isEmpty() ? null : trust(authorities).getTrustManagers(), null);
      return context;
    } catch (IOException e) {
      throw new GeneralSecurityException(e);
    }
  }

  private static TrustManagerFactory trust(String authorities) throws GeneralSecurityException, IOException {
    KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
    trusted.load(null, PASSWORD);
    for (Certificate each : readCertificates(authorities)) {
      trusted.setCertificateEntry("authority-" + trusted.size(), each);
    }
    TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    factory.init(trusted);
    return factory;
  }

  private static Certificate[] readCertificates(String text) throws GeneralSecurityException {
    byte[] content = text.getBytes(StandardCharsets.UTF_8);
    Collection<? extends Certificate> found =
        CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(content));
    if (found.isEmpty()) {
      throw new KeyException("there is no certificate");
    }
    return found.toArray(new Certificate[0]);
  }

  /** Reads PKCS#8, and what older tools write, PKCS#1 and SEC1, by putting it into PKCS#8. */
  private static PrivateKey readKey(String text, PublicKey mate) throws GeneralSecurityException, IOException {
    Matcher found = KEY.matcher(text);
    if (!found.find()) {
      throw new KeyException("there is no private key in PEM without a password");
    }
    byte[] encoded = Base64.getMimeDecoder().decode(found.group(2));
    byte[] wrapped = found.group(1).isEmpty() ? encoded : wrap(encoded, mate);
    return KeyFactory.getInstance(mate.getAlgorithm()).generatePrivate(new PKCS8EncodedKeySpec(wrapped));
  }

  /** PKCS#8 is a version, the algorithm, and the key. The public key of the certificate names the same algorithm. */
  private static byte[] wrap(byte[] key, PublicKey mate) throws IOException {
    byte[] algorithm = firstMember(mate.getEncoded());
    return encode(0x30, concat(new byte[] {2, 1, 0}, algorithm, encode(0x04, key)));
  }

  private static byte[] firstMember(byte[] sequence) {
    int start = headerLength(sequence, 0);
    int end = start + headerLength(sequence, start) + contentLength(sequence, start);
    return Arrays.copyOfRange(sequence, start, end);
  }

  private static int headerLength(byte[] der, int at) {
    int first = der[at + 1] & 0xff;
    return first < 0x80 ? 2 : 2 + (first & 0x7f);
  }

  private static int contentLength(byte[] der, int at) {
    int first = der[at + 1] & 0xff;
    if (first < 0x80) {
      return first;
    }
    int length = 0;
    for (int index = 0; index < (first & 0x7f); index++) {
      length = length << 8 | der[at + 2 + index] & 0xff;
    }
    return length;
  }

  private static byte[] encode(int tag, byte[] content) throws IOException {
    int length = content.length;
    byte[] header;
    // As few bytes as possible, or the runtime refuses it.
    if (length < 0x80) {
      header = new byte[] {(byte) tag, (byte) length};
    } else if (length < 0x100) {
      header = new byte[] {(byte) tag, (byte) 0x81, (byte) length};
    } else {
      header = new byte[] {(byte) tag, (byte) 0x82, (byte) (length >> 8), (byte) length};
    }
    return concat(header, content);
  }

  private static byte[] concat(byte[]... parts) throws IOException {
    ByteArrayOutputStream whole = new ByteArrayOutputStream();
    for (byte[] part : parts) {
      whole.write(part);
    }
    return whole.toByteArray();
  }
}

package dev.slipway.jmx.guard;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/** Reads requests and writes answers. */
final class Files {
  private static final int MESSAGE_LIMIT = 2_000;

  private Files() {}

  static Map<String, String> read(Path path) throws IOException {
    Properties properties = new Properties();
    try (InputStream in = java.nio.file.Files.newInputStream(path)) {
      properties.load(in);
    }
    Map<String, String> request = new HashMap<>();
    for (String name : properties.stringPropertyNames()) {
      request.put(name, properties.getProperty(name));
    }
    return request;
  }

  static List<String> readLines(String path) throws IOException {
    return java.nio.file.Files.readAllLines(Paths.get(path));
  }

  /** Returns the SHA-256 of a file, in hexadecimal. */
  static String hash(Path path) throws IOException, NoSuchAlgorithmException {
    StringBuilder text = new StringBuilder();
    for (byte each : MessageDigest.getInstance("SHA-256").digest(java.nio.file.Files.readAllBytes(path))) {
      text.append(String.format("%02x", each));
    }
    return text.toString();
  }

  /** Writes the response whole or not at all, so that a reader never sees a part of it. */
  static void write(Path path, Map<String, String> answer) throws IOException {
    Properties properties = new Properties();
    for (Map.Entry<String, String> entry : answer.entrySet()) {
      String value = entry.getValue();
      properties.setProperty(entry.getKey(), value.substring(0, Math.min(value.length(), MESSAGE_LIMIT)));
    }
    Path partial = path.resolveSibling(path.getFileName() + ".partial");
    try (OutputStream out = java.nio.file.Files.newOutputStream(partial)) {
      properties.store(out, null);
    }
    java.nio.file.Files.move(partial, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
  }
}

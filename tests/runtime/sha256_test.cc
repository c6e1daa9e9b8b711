// The hash of the cache's keys, against the examples that NIST publishes for FIPS 180-4.
#include "runtime/data/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace cellc {
namespace {

std::string digest_of(const std::string& text, std::size_t piece) {
  Sha256 hash;
  for (std::size_t i = 0; i < text.size(); i += piece) hash.add(text.data() + i, std::min(piece, text.size() - i));
  std::string digits;
  for (const std::uint8_t byte : hash.finish()) {
    digits += "0123456789abcdef"[byte >> 4];
    digits += "0123456789abcdef"[byte & 15];
  }
  return digits;
}

TEST(Sha256, PublishedExamples) {
  EXPECT_EQ(digest_of("", 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest_of(std::string(1000000, 'a'), 1000),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, HowTextIsCutDoesNotMatter) {
  for (std::size_t length = 0; length < 200; ++length) {
    std::string text;
    for (std::size_t i = 0; i < length; ++i) text += static_cast<char>(i * 37 + length);
    const std::string whole = digest_of(text, 1000);
    for (const std::size_t piece : {1, 7, 55, 56, 63, 64, 65}) {
      EXPECT_EQ(digest_of(text, piece), whole) << length << " bytes in pieces of " << piece;
    }
  }
}

}  // namespace
}  // namespace cellc

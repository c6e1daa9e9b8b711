// .npy files: what NumPy writes is read, and no damaged file does worse than a message.
#include "runtime/data/npy.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/cpu/engine.h"

namespace cellc {
namespace {

std::string npy(const std::string& dictionary, const std::string& data, int version = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  std::string header = dictionary + "\n";
  const std::size_t length = header.size();
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) file += static_cast<char>(length >> (8 * i) & 0xff);
  return file + header + data;
}

std::string dictionary(const std::string& descr, const std::string& shape, const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

std::string error_of(const std::string& bytes) {
  try {
    parse_npy(bytes, "bad.npy");
  } catch (const RequestError& e) {
    EXPECT_EQ(std::string(e.what()).rfind("bad.npy: ", 0), 0u) << "the message names the file: " << e.what();
    return e.what();
  }
  return "";
}

TEST(Npy, ReadsEveryDtypeAndVersion) {
  const float values[] = {1.5f, -2, 3, 4, 5, 6};
  const std::string data(reinterpret_cast<const char*>(values), sizeof values);
  for (const int version : {1, 2, 3}) {
    const Array array = parse_npy(npy(dictionary("<f4", "(2, 3)"), data, version), "a.npy");
    EXPECT_EQ(array.dtype(), Dtype::F32);
    EXPECT_EQ(array.shape(), (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(array.get(0), 1.5);
    EXPECT_EQ(array.get(5), 6);
  }
  EXPECT_EQ(parse_npy(npy(dictionary("<f8", "(3,)"), data), "a").dtype(), Dtype::F64);
  EXPECT_EQ(parse_npy(npy(dictionary("<f2", "(12,)"), data), "a").dtype(), Dtype::F16);
  EXPECT_EQ(parse_npy(npy(dictionary("<u2", "(12,)"), data), "a").dtype(), Dtype::U16);
  EXPECT_EQ(parse_npy(npy(dictionary("<i2", "(12,)"), data), "a", Int16::RawBits).dtype(), Dtype::U16);
  EXPECT_EQ(parse_npy(npy(dictionary("<i8", "(3,)"), data), "a").dtype(), Dtype::I64);
}

TEST(Npy, ReadsIntegersOfAnyWidth) {
  const auto check = [](const char* descr, auto... values) {
    const auto numbers = {values...};
    const std::string data(reinterpret_cast<const char*>(numbers.begin()), sizeof(*numbers.begin()) * numbers.size());
    const Array array = parse_npy(npy(dictionary(descr, "(" + std::to_string(numbers.size()) + ",)"), data), descr);
    EXPECT_EQ(array.dtype(), Dtype::I64) << descr;
    std::int64_t i = 0;
    for (const auto n : numbers) EXPECT_EQ(array.get(i++), static_cast<double>(n)) << descr;
    EXPECT_EQ(parse_npy(npy(dictionary(descr, "(0,)"), ""), descr).count(), 0);
    EXPECT_NE(error_of(npy(dictionary(descr, "(9,)"), data)).find("cut short"), std::string::npos) << descr;
  };
  check("|b1", std::uint8_t{1}, std::uint8_t{0}, std::uint8_t{1});
  check("|i1", std::int8_t{-128}, std::int8_t{127}, std::int8_t{0}, std::int8_t{-1});
  check("|u1", std::uint8_t{255}, std::uint8_t{0});
  check("<i2", std::int16_t{-32768}, std::int16_t{32767}, std::int16_t{-2});
  check("<i4", std::int32_t{-2147483647}, std::int32_t{2147483647}, std::int32_t{-3});
  check("<u4", std::uint32_t{4294967295u}, std::uint32_t{7});
  check("<i8", std::int64_t{-5}, std::int64_t{1} << 40);
}

TEST(Npy, ReadsScalarsAndEmptyArrays) {
  const float one = 1;
  const std::string data(reinterpret_cast<const char*>(&one), 4);
  EXPECT_EQ(parse_npy(npy(dictionary("<f4", "()"), data), "a").shape().size(), 0u);
  EXPECT_EQ(parse_npy(npy(dictionary("<f4", "(1,)"), data), "a").get(0), 1);
  EXPECT_EQ(parse_npy(npy(dictionary("<f4", "(0, 7)"), ""), "a").count(), 0);
  // Fortran order says nothing about an array of one dimension.
  EXPECT_EQ(parse_npy(npy(dictionary("<f4", "(1,)", "True"), data), "a").get(0), 1);
}

TEST(Npy, AcceptsOtherSpellingsOfTheHeader) {
  const std::string data(8, '\0');
  for (const char* text : {"{'descr':'<f4','fortran_order':False,'shape':(2,)}",
                           "{ \"shape\" : ( 2 , ) , \"descr\" : \"<f4\" , \"fortran_order\" : False , }",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (2L,), }"})
    EXPECT_EQ(parse_npy(npy(text, data), text).count(), 2) << text;
}

TEST(Npy, RoundTrip) {
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::F16, Dtype::BF16, Dtype::I64})
    for (const auto& shape : {std::vector<std::int64_t>{}, {5}, {2, 0, 3}, {2, 3, 4}}) {
      Array array(dtype, shape);
      for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, static_cast<double>(i));
      const std::string header = npy_header(array);
      EXPECT_EQ(header.size() % 64, 0u);
      Array back =
          parse_npy(header + std::string(static_cast<const char*>(array.data()), array.count() * size_of(dtype)), "a");
      if (dtype == Dtype::BF16) {
        EXPECT_EQ(back.dtype(), Dtype::U16);
        back.reinterpret(Dtype::BF16);
      }
      EXPECT_EQ(back.dtype(), dtype);
      EXPECT_EQ(back.shape(), shape);
      for (std::int64_t i = 0; i < array.count(); ++i) EXPECT_EQ(back.get(i), static_cast<double>(i));
    }
}

TEST(Npy, DamagedFilesGiveMessages) {
  const std::string data(24, '\0');
  const struct {
    std::string bytes, expected;
  } cases[] = {
      {"", "is not a .npy file"},
      {"\x93NUMPY", "is not a .npy file"},
      {"PK\x03\x04 this is a zip file", "is not a .npy file"},
      {npy(dictionary("<f4", "(2, 3)"), data, 4), "version 4"},
      {npy(dictionary("<f4", "(2, 3)"), data, 0), "version 0"},
      {npy(dictionary("<f4", "(2, 3)"), data).substr(0, 11), "ends inside its header"},
      {npy(dictionary("<f4", "(2, 3)"), data).substr(0, 40), "ends inside its header"},
      {npy(dictionary("<f4", "(2, 3)"), data.substr(1)), "cut short: shape [2, 3] of f32 takes 24 bytes, 23"},
      {npy(dictionary("<f4", "(2, 3)"), data + "x"), "1 bytes after the end"},
      {npy(dictionary("<f4", "(2, 3)", "True"), data), "Fortran order"},
      {npy(dictionary(">f4", "(2, 3)"), data), "big-endian"},
      {npy(dictionary("<u8", "(3,)"), data), "has the dtype '<u8'"},
      {npy(dictionary("|O", "(2, 3)"), data), "has the dtype '|O'"},
      {npy(dictionary("<f4", "(-2, 3)"), data), "negative dimension"},
      {npy(dictionary("<f4", "(99999999999999999999,)"), data), "no array can have"},
      {npy(dictionary("<f4", "(4611686018427387904, 4)"), data), "no memory can hold"},
      {npy(dictionary("<f4", "(9223372036854775807,)"), data), "no memory can hold"},
      {npy(dictionary("<f4", "(4611686018427387904, 4611686018427387904, 0)"), ""), "no memory can hold"},
      {npy(dictionary("<f4", "(1000000000000,)"), data), "cut short"},
      {npy(dictionary("<f4", "(2, 3"), data), "damaged header"},
      {npy(dictionary("<f4", "(2, x)"), data), "damaged header"},
      {npy(dictionary("<f4", "2"), data), "damaged header"},
      {npy("{'descr': '<f4', 'shape': (6,), }", data), "must give descr, fortran_order and shape"},
      {npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }", data), "structured array"},
      {npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (6,), }", data), "damaged header"},
      {npy("{'colour': 'red', }", data), "unknown key 'colour'"},
      {npy("", data), "damaged header"},
      {npy("import os", data), "damaged header"},
      {npy("{'descr': '<f4", data), "damaged header"},
  };
  for (const auto& c : cases)
    EXPECT_NE(error_of(c.bytes).find(c.expected), std::string::npos) << c.expected << "\n  got: " << error_of(c.bytes);
}

// Every prefix and every file with one byte changed is read or refused; none may crash or hang.
TEST(Npy, SurvivesEveryByteChanged) {
  const std::string good = npy(dictionary("<f4", "(2, 3)"), std::string(24, '\1'));
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_NE(error_of(good.substr(0, n)), "");
  for (std::size_t at = 0; at < good.size(); ++at)
    for (int value = 0; value < 256; ++value) {
      std::string bad = good;
      bad[at] = static_cast<char>(value);
      error_of(bad);
    }
}

class NpyFile : public testing::Test {
 protected:
  std::string directory = testing::TempDir() + "/npy_test_" + std::to_string(getpid());
  void SetUp() override { std::filesystem::create_directories(directory); }
  void TearDown() override { std::filesystem::remove_all(directory); }
  std::string error(const std::string& path) {
    try {
      read_npy(path);
    } catch (const RequestError& e) {
      return e.what();
    }
    return "";
  }
};

TEST_F(NpyFile, ReadsFromDisk) {
  const std::string path = directory + "/a.npy";
  const double values[] = {1, 2, 3};
  std::ofstream(path, std::ios::binary) << npy(dictionary("<f8", "(3,)"),
                                               std::string(reinterpret_cast<const char*>(values), sizeof values));
  EXPECT_EQ(read_npy(path).get(2), 3);
}

TEST_F(NpyFile, UnreadableFilesNameThePath) {
  EXPECT_NE(error(directory + "/none.npy").find("none.npy: cannot open: No such file"), std::string::npos);
  EXPECT_NE(error(directory).find("is not a regular file"), std::string::npos);
  const std::string pipe = directory + "/pipe.npy";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(error(pipe).find("is not a regular file"), std::string::npos) << "and does not wait for a writer";
  const std::string huge = directory + "/huge.npy";
  std::ofstream(huge, std::ios::binary) << npy(dictionary("<f4", "(300000000000,)"), "");
  EXPECT_NE(error(huge).find("cut short"), std::string::npos) << "and does not allocate what the header claims";
}

}  // namespace
}  // namespace cellc

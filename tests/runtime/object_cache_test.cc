// Compiled code on disk: found again, never believed when it is damaged, and never a reason to fail.
#include "runtime/data/object_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "compiler/front_end.h"
#include "runtime/build/compile_orc.h"
#include "runtime/cpu/engine.h"
#include "runtime/data/bind.h"

namespace cellc {
namespace {

namespace fs = std::filesystem;

ObjectKey key_of(int number) {
  ObjectIdentity identity;
  identity.text = std::to_string(number);
  return object_key(identity);
}

class ObjectCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/object_cache_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root = pattern;
    directory = root + "/cache";
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(root, ignored);
  }

  std::string content(const std::string& path) const {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  void overwrite(const std::string& path, const std::string& text) const {
    std::ofstream(path, std::ios::binary) << text;
  }
  std::optional<std::string> found(const ObjectCache& cache, const ObjectKey& key) const {
    const auto object = cache.find(key);
    return object ? std::optional<std::string>(std::in_place, object->begin(), object->end()) : std::nullopt;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory, error)) all.push_back(entry.path().filename());
    return all;
  }
  void set_age(const std::string& path, std::time_t seconds) const {
    const struct timespec then = {std::time(nullptr) - seconds, 0};
    const struct timespec times[2] = {then, then};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  std::string root, directory;
};

const std::string kObject("some\0machine code\xff", 18);

TEST_F(ObjectCacheTest, FindsWhatWasStored) {
  const ObjectCache cache(directory);
  EXPECT_FALSE(cache.find(key_of(1)));
  EXPECT_TRUE(cache.store(key_of(1), kObject));
  EXPECT_TRUE(cache.store(key_of(2), ""));
  EXPECT_EQ(found(cache, key_of(1)), kObject);
  EXPECT_EQ(found(cache, key_of(2)), "");
  EXPECT_FALSE(cache.find(key_of(3)));
  EXPECT_TRUE(cache.store(key_of(1), "other code"));
  EXPECT_EQ(found(ObjectCache(directory + "/"), key_of(1)), "other code");
  EXPECT_EQ(names().size(), 2u) << "no temporaries stay";
}

TEST_F(ObjectCacheTest, EveryPartOfTheIdentityCounts) {
  const ObjectIdentity identity{"object", "text", "x86_64-linux", "a processor", "+avx2,+fma", "O1", "LLVM 19.1.7"};
  EXPECT_EQ(object_key(identity), object_key(ObjectIdentity(identity)));
  const std::vector<std::pair<const char*, std::function<void(ObjectIdentity&)>>> changes = {
      {"kind", [](auto& i) { i.kind = "cubin"; }},
      {"text", [](auto& i) { i.text = "teXt"; }},
      {"platform", [](auto& i) { i.platform = "aarch64-linux"; }},
      {"processor", [](auto& i) { i.processor = "another"; }},
      {"features", [](auto& i) { i.features = "+avx2,-fma"; }},
      {"options", [](auto& i) { i.options = "O2"; }},
      {"version of LLVM", [](auto& i) { i.compiler = "LLVM 19.1.8"; }},
      {"border between two parts", [](auto& i) { i.text = "textx", i.platform = "86_64-linux"; }},
  };
  const ObjectCache cache(directory);
  ASSERT_TRUE(cache.store(object_key(identity), kObject));
  for (const auto& [what, change] : changes) {
    ObjectIdentity changed = identity;
    change(changed);
    EXPECT_FALSE(cache.find(object_key(changed))) << what;
  }
  EXPECT_TRUE(cache.find(object_key(identity)));
}

TEST_F(ObjectCacheTest, AnyDamageIsAMissAndIsReplaced) {
  const ObjectCache cache(directory);
  const ObjectKey key = key_of(1);
  const std::string path = cache.path_of(key);
  ASSERT_TRUE(cache.store(key, kObject));
  const std::string whole = content(path);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    overwrite(path, flipped);
    EXPECT_FALSE(cache.find(key)) << "byte " << i << " differs";
    overwrite(path, whole.substr(0, i));
    EXPECT_FALSE(cache.find(key)) << "cut after " << i << " bytes";
  }
  overwrite(path, whole + "x");
  EXPECT_FALSE(cache.find(key)) << "too long";
  overwrite(path, "a letter, a picture, anything: but longer than the header of an entry, which has 88 bytes");
  EXPECT_FALSE(cache.find(key)) << "foreign";
  ASSERT_TRUE(cache.store(key_of(2), kObject));
  fs::copy_file(cache.path_of(key_of(2)), path, fs::copy_options::overwrite_existing);
  EXPECT_FALSE(cache.find(key)) << "the entry of another key";
  EXPECT_TRUE(cache.store(key, kObject));
  EXPECT_EQ(found(cache, key), kObject);
  EXPECT_EQ(content(path), whole);
}

TEST_F(ObjectCacheTest, OnlyFilesOfThisUserAreBelieved) {
  const ObjectCache cache(directory);
  const ObjectKey key = key_of(1);
  const std::string path = cache.path_of(key);
  ASSERT_TRUE(cache.store(key, kObject));
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_FALSE(cache.find(key)) << "anybody can write it";
  if (geteuid() == 0) {
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
    EXPECT_FALSE(cache.find(key)) << "somebody else wrote it";
  }
  EXPECT_TRUE(cache.store(key, kObject));
  EXPECT_TRUE(cache.find(key));
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(cache.find(key)) << "a pipe, on which nobody will write";
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_FALSE(cache.find(key));
  EXPECT_FALSE(cache.store(key, kObject)) << "a directory cannot be replaced";
  EXPECT_EQ(names().size(), 1u) << "no temporaries stay";
}

TEST_F(ObjectCacheTest, DirectoriesAreMadeForThisUser) {
  const std::string deep = directory + "/of/cellc/";
  EXPECT_TRUE(ObjectCache(deep).store(key_of(1), kObject));
  EXPECT_TRUE(ObjectCache(deep).find(key_of(1)));
  EXPECT_EQ(fs::status(directory).permissions(), fs::perms::owner_all);
}

TEST_F(ObjectCacheTest, UnusableDirectoriesAreNoError) {
  overwrite(root + "/file", "text");
  for (const std::string& name : {std::string(), root + "/file", root + "/file/below", std::string("/proc/none/at/all"),
                                  std::string("/dev/null"), root + "/" + std::string(300, 'x')}) {
    const ObjectCache cache(name);
    EXPECT_FALSE(cache.find(key_of(1))) << name;
    EXPECT_FALSE(cache.store(key_of(1), kObject)) << name;
    cache.sweep();
  }
  EXPECT_EQ(content(root + "/file"), "text");
}

TEST_F(ObjectCacheTest, AReadOnlyDirectoryIsRead) {
  const ObjectCache cache(directory);
  ASSERT_TRUE(cache.store(key_of(1), kObject));
  ASSERT_EQ(chmod(cache.path_of(key_of(1)).c_str(), 0644), 0);
  ASSERT_EQ(chmod(root.c_str(), 0755), 0);
  ASSERT_EQ(chmod(directory.c_str(), 0555), 0);
  const uid_t user = geteuid();
  if (user == 0 && seteuid(65534) != 0) GTEST_SKIP() << "root writes anywhere, and cannot be another here";
  EXPECT_EQ(found(cache, key_of(1)), kObject);
  EXPECT_FALSE(cache.store(key_of(2), kObject));
  EXPECT_FALSE(cache.store(key_of(1), kObject));
  ASSERT_EQ(seteuid(user), 0);
  ASSERT_EQ(chmod(directory.c_str(), 0755), 0);
  EXPECT_EQ(names().size(), 1u);
}

TEST_F(ObjectCacheTest, AFullDiskLeavesNothingBehind) {
  const ObjectCache cache(directory);
  ASSERT_TRUE(cache.store(key_of(1), kObject));
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 1000, before.rlim_max };
  setrlimit(RLIMIT_FSIZE, &small);
  const bool kept = cache.store(key_of(1), std::string(100000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_DFL);
  EXPECT_FALSE(kept);
  EXPECT_EQ(found(cache, key_of(1)), kObject) << "the entry before it stays";
  EXPECT_EQ(names().size(), 1u);
}

TEST_F(ObjectCacheTest, SweepingRemovesWhatWasUsedLeastRecently) {
  const std::string object(912, 'x');  // 1000 bytes with the header
  const ObjectCache cache(directory, 8000);
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(cache.store(key_of(i), object));
    set_age(cache.path_of(key_of(i)), 100000 - i);
  }
  cache.sweep();
  EXPECT_EQ(names().size(), 8u) << "the limit is not passed";
  ASSERT_TRUE(cache.find(key_of(2)));  // used now
  ASSERT_TRUE(ObjectCache(directory).store(key_of(9), object));
  overwrite(directory + "/notes.txt", std::string(100000, 'n'));
  const std::string temporary = directory + "/." + std::string(64, 'a') + ".Ab1xYz";
  overwrite(temporary, "half");
  cache.sweep();
  EXPECT_TRUE(fs::exists(temporary)) << "somebody may be writing it";
  set_age(temporary, 100000);
  cache.sweep();
  EXPECT_FALSE(fs::exists(temporary));
  EXPECT_TRUE(fs::exists(directory + "/notes.txt")) << "not ours";
  for (const int i : {0, 1, 3}) EXPECT_FALSE(cache.find(key_of(i))) << i;
  for (const int i : {2, 4, 5, 6, 7, 9}) EXPECT_TRUE(cache.find(key_of(i))) << i;
}

TEST_F(ObjectCacheTest, StoringKeepsTheBound) {
  const std::string object(912, 'x');
  const ObjectCache cache(directory, 20000);
  std::size_t most = 0;
  for (int i = 0; i < 400; ++i) {
    ASSERT_TRUE(cache.store(key_of(i), object));
    most = std::max(most, names().size());
  }
  EXPECT_GE(most, 20u);
  EXPECT_LE(most, 80u) << "one key in eight sweeps";
  EXPECT_FALSE(cache.store(key_of(1000), std::string(20000, 'x'))) << "larger than everything may be";
}

TEST_F(ObjectCacheTest, DefaultDirectories) {
  std::map<std::string, std::optional<std::string>> before;
  for (const char* name : {"CELLC_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}) {
    const char* value = std::getenv(name);
    before[name] = value ? std::optional<std::string>(value) : std::nullopt;
    unsetenv(name);
  }
  EXPECT_EQ(default_cache_directory(), "");
  setenv("HOME", "/home/somebody", 1);
  EXPECT_EQ(default_cache_directory(), "/home/somebody/.cache/cellc");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(default_cache_directory(), "/home/somebody/.cache/cellc");
  setenv("XDG_CACHE_HOME", "/var/cache", 1);
  EXPECT_EQ(default_cache_directory(), "/var/cache/cellc");
  setenv("CELLC_CACHE_DIR", "here", 1);
  EXPECT_EQ(default_cache_directory(), "here");
  setenv("CELLC_CACHE_DIR", "", 1);
  EXPECT_EQ(default_cache_directory(), "");
  for (const auto& [name, value] : before) {
    if (value)
      setenv(name.c_str(), value->c_str(), 1);
    else
      unsetenv(name.c_str());
  }
}

/// A program through the cache, and what a run of it gives.
class CachedProgram : public ObjectCacheTest {
 protected:
  void SetUp() override {
    ObjectCacheTest::SetUp();
    AnalysedCell analysed = analyse_text(SourceText("test.cell", R"(cell gated[d, m] {
  state h[d]
  input x[m]
  param W[d,m]
  h' = 0.5*h + tanh(W@x)
  out y = exp(h')
})"));
    cell = std::move(analysed.cell);
    structure = std::move(analysed.structure);
  }

  CacheState compile(CompileOptions options = {}) {
    options.cache_directory = directory;
    const Program program = Program::compile(cell, structure, options);
    BindRequest request;
    request.dims = {{"d", 37}, {"m", 5}};
    request.batch = 2;
    request.length = 9;
    request.random_seed = 1;
    request.dtype = options.dtype;
    const RunOutput output = program.run(bind(cell, request).run);
    bits.clear();
    for (const std::vector<Array>* arrays : {&output.states, &output.finals, &output.outs})
      for (const Array& array : *arrays)
        bits.append(static_cast<const char*>(array.data()),
                    static_cast<std::size_t>(array.count()) * size_of(array.dtype()));
    return program.cache();
  }
  std::string only_entry() const {
    EXPECT_EQ(names().size(), 1u);
    return directory + "/" + names().at(0);
  }

  CellGraph cell;
  Structure structure;
  std::string bits;  ///< of the last run
};

TEST_F(CachedProgram, AHitRunsTheSameCode) {
  EXPECT_EQ(compile(), CacheState::Miss);
  const std::string missed = bits;
  EXPECT_EQ(compile(), CacheState::Hit);
  EXPECT_EQ(bits, missed);
  EXPECT_EQ(compile({.dtype = Dtype::F64}), CacheState::Miss);
  EXPECT_EQ(compile({.vector_bits = 128}), CacheState::Miss);
  EXPECT_EQ(compile({.dtype = Dtype::F64}), CacheState::Hit);
  EXPECT_EQ(names().size(), 3u);
#if defined(__x86_64__)
  EXPECT_EQ(compile({.cpu = "x86-64-v3", .vector_bits = 128}), CacheState::Miss);
  EXPECT_EQ(compile({.cpu = "x86-64-v3", .vector_bits = 128}), CacheState::Hit);
#endif
  directory = "";
  EXPECT_EQ(compile(), CacheState::Off);
  EXPECT_EQ(bits, missed);
}

TEST_F(CachedProgram, DamagedCodeIsCompiledAgain) {
  ASSERT_EQ(compile(), CacheState::Miss);
  const std::string right = bits, path = only_entry(), whole = content(path);
  std::string flipped = whole;
  flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 0x10);
  for (const std::string& damaged : {flipped, whole.substr(0, whole.size() / 2), std::string(), whole + whole}) {
    overwrite(path, damaged);
    EXPECT_EQ(compile(), CacheState::Miss);
    EXPECT_EQ(bits, right);
    EXPECT_EQ(content(path), whole) << "the same text gives the same code";
    EXPECT_EQ(compile(), CacheState::Hit);
  }
}

TEST_F(CachedProgram, AnEntryThatDoesNotLinkIsCompiledAgain) {
  ASSERT_EQ(compile(), CacheState::Miss);
  const std::string path = only_entry(), whole = content(path), name = names().at(0);
  ObjectKey key{};
  for (std::size_t i = 0; i < key.size(); ++i)
    key[i] = static_cast<std::uint8_t>(std::stoi(name.substr(2 * i, 2), nullptr, 16));
  ASSERT_TRUE(ObjectCache(directory).store(key, "this is whole, but no code"));
  EXPECT_EQ(compile(), CacheState::Miss);
  EXPECT_EQ(content(path), whole);
}

TEST_F(CachedProgram, CodeThatDoesNotLinkIsNotKept) {
  EXPECT_THROW(compile_orc("declare float @tanhf(float)\n"
                           "define float @f(float %x) {\n  %y = call float @tanhf(float %x)\n  ret float %y\n}\n",
                           "native", {}, directory),
               DeviceError);
  EXPECT_TRUE(names().empty());
}

}  // namespace
}  // namespace cellc

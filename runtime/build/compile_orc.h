#pragma once
// Compiles LLVM IR text to callable machine code of this process.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/errors.h"
#include "runtime/data/object_cache.h"

namespace cellc {

/// Code of one module, alive as long as this object.
class CompiledModule {
 public:
  ~CompiledModule();
  CompiledModule(const CompiledModule&) = delete;
  CompiledModule& operator=(const CompiledModule&) = delete;

  /// Address of a function that the module defines and exports; nullptr if there is none.
  void* symbol(const std::string& name) const;
  /// Assembly text of the whole module. Compiles again.
  std::string assembly() const;

  double compile_ms = 0;  ///< text to callable code
  CacheState cache = CacheState::Off;

 private:
  struct Impl;
  explicit CompiledModule(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  friend std::unique_ptr<CompiledModule> compile_orc(const std::string&, const std::string&,
                                                     const std::map<std::string, void*>&, const std::string&);
};

/// Compiles for `cpu` ("native" or LLVM's name of one, which this machine must be able to run and
/// which must have SSE 4.1). The module may call what it defines, memcpy, memmove, memset
/// and `callbacks`, nothing else: a function of libm that slipped in is an error, not a slow answer.
/// Code is taken from, and kept in, `cache_directory` unless that is empty.
/// Throws DeviceError with LLVM's message and the line of the text that it is about.
std::unique_ptr<CompiledModule> compile_orc(const std::string& ir_text, const std::string& cpu,
                                            const std::map<std::string, void*>& callbacks = {},
                                            const std::string& cache_directory = "");

/// Text for one processor, "native" or LLVM's name of one, which this machine need not be able to run.
struct ObjectPart {
  std::string cpu;
  std::vector<std::string> ir_texts;
};
struct ObjectRequest {
  std::vector<ObjectPart> parts;  ///< one or more, each with all functions
  /// Functions that are seen from outside. Of several parts a call of one of `run` goes to the last part that this
  /// machine can run, and gives CELLC_NO_PROCESSOR where there is none; `told` do the same on any machine, as in the
  /// first part.
  std::vector<std::string> run, told;
  /// Name of a function that the object gets: which of the parts that is, from 1 on; 0: none. Empty, of one part: no
  /// such.
  std::string supported;
};
/// Position-independent object code, for a linker. Throws DeviceError.
std::string compile_object(const ObjectRequest& request);
/// Whether LLVM has a processor of that name, or it is "native".
bool is_processor(const std::string& cpu);
/// Widest vectors of a processor that this machine need not be able to run.
int target_vector_bits(const std::string& cpu);
/// "LLVM 19.1.7": of the library that is loaded.
std::string llvm_version();

/// Widest vectors of `cpu` in bits: 512, 256 or 128.
int host_vector_bits(const std::string& cpu);
/// LLVM's name of this machine's processor.
std::string host_cpu_name();

}  // namespace cellc

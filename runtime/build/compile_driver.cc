#include "runtime/build/compile_driver.h"

#include "runtime/data/errors.h"
#include "runtime/data/storage_of.h"

namespace cellc {

CompiledDriver compile_driver(const CellGraph& cell, const Structure& structure, const CompileOptions& options) {
  DriverOptions driver;
  driver.storage = storage_of(options.dtype);
  driver.vector_bits = options.vector_bits ? options.vector_bits : host_vector_bits(options.cpu);
  CompiledDriver result;
  result.module = emit_driver(cell, structure, driver);
  result.code = compile_orc(result.module.ir, options.cpu, {}, options.cache_directory);
  const auto find = [&](const std::string& name, auto& function) {
    void* address = result.code->symbol(driver.prefix + name);
    if (!address) throw DeviceError("LLVM lost the function " + driver.prefix + name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
  find("_workspace", result.workspace);
  find("_forward", result.forward);
  find("_message", result.message);
  return result;
}

}  // namespace cellc

#include "runtime/build/compile_driver.h"

#include "runtime/data/errors.h"
#include "runtime/data/storage_of.h"

namespace cellc {

namespace {

DriverOptions driver_options(const CompileOptions& options) {
  DriverOptions driver;
  driver.storage = storage_of(options.dtype);
  driver.vector_bits = options.vector_bits ? options.vector_bits : host_vector_bits(options.cpu);
  return driver;
}

CompiledDriver compiled(DriverModule module, const CompileOptions& options) {
  CompiledDriver result;
  result.module = std::move(module);
  result.code = compile_orc(result.module.ir, options.cpu, {}, options.cache_directory);
  const auto find = [&](std::size_t number, auto& function) {
    const std::string& name = result.module.functions[number];
    void* address = result.code->symbol(name);
    if (!address) throw DeviceError("LLVM lost the function " + name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
  find(0, result.workspace);
  find(1, result.forward);
  find(2, result.message);
  return result;
}

}  // namespace

CompiledDriver compile_driver(const CellGraph& cell, const Structure& structure, const CompileOptions& options,
                              bool side_by_side) {
  DriverOptions driver = driver_options(options);
  driver.side_by_side = side_by_side;
  return compiled(emit_driver(cell, structure, driver), options);
}

CompiledDriver compile_backward_driver(const CellGraph& whole, const CompileOptions& options, bool side_by_side) {
  DriverOptions driver = driver_options(options);
  driver.side_by_side = side_by_side;
  return compiled(emit_backward_driver(whole, driver), options);
}

}  // namespace cellc

from __future__ import annotations
import time
async def test_try(rig, model, make_runner):
    t=time.time()
    def add(a: int, b: int) -> int:
        """Add."""
        return a+b
    runner = await make_runner(add)
    print("served", time.time()-t)
    model.call("add", {"a":1,"b":2})
    model.reply("3")
    task = await runner.create_task("q")
    a = await runner.run_step(task)
    print(time.time()-t, a)
    b = await runner.run_step(task)
    print(time.time()-t, b)
    print(await runner.finalize_response(task), time.time()-t)
    await rig.stop()
    print("stopped", time.time()-t)

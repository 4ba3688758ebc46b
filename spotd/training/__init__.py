"""What a training script may import: the notice to stop, and a place to report progress. Standard library only.

Plain functions over the two files that spotd names in the environment. Outside spotd the variables are not set: `notice` is always None and the
reports go nowhere, so a script needs no second version of itself.

    import spotd.training as spotd

    for step in range(start, steps):
        loss = train_one_step()
        spotd.report(step=step, loss=loss)
        if step % 1000 == 0 or spotd.notice() is not None:
            save(f"step-{step}")                          # written and fsynced inside $SPOTD_CHECKPOINT_DIR
            spotd.checkpoint(f"step-{step}", step=step)   # complete from here on
    spotd.done()
"""

from spotd.training.notice import Notice, notice
from spotd.training.progress import checkpoint, done, report

__all__ = ["Notice", "checkpoint", "done", "notice", "report"]
